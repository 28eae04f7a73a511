"""All points of a config's sweep: learning rates, seeds, or anything else.

    python -m experiments.sweep --config configs/glue.py:task=rte --config.init_from=runs/large --workdir runs/rte-sweep

A config has a sweep if its file has a function ``sweep(add)``: a call ``add(**{"optimizer.learning_rate": 5e-5})``
is a point. Every point is a run of its own in a folder of the workdir. A stopped sweep goes on where it was: a point
that is finished is not run again, and a config that differs in anything but the points is refused. The table at the end
has a line for each setting but the seed: mean, standard deviation, median, best and number of runs of the figure that
selects, and how many runs learned nothing; ``report.html`` shows the same and the curves. ``sweep.json`` holds the
config, and of every finished point the figures, the versions of code and libraries, hardware and a hash of the data.

One point after another; or ``--together=12``: so many as one program, as far as they differ in learning rate, weight
decay and seed alone (their memory adds up); or ``--at_a_time=4``: so many processes, each with its share of the
devices. ``--list`` prints the commands instead, one a line, for SLURM arrays, Kubernetes or a shell:

    python -m experiments.sweep ... --list | sed -n "${SLURM_ARRAY_TASK_ID}p" | sh

and ``experiments.sweep`` itself, started when they are done, finds their results and prints the table.
"""

from __future__ import annotations

import shlex
import sys

from absl import flags
from ml_collections import config_flags

from experiments.program import end_with_the_reader, run_program
from experiments.sweep_points import command_of, config_arguments, points_of
from experiments.sweep_runs import run_points

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py[:key=value,...]", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "directory or URL of the sweep, a folder a point", required=True)
_TOGETHER = flags.DEFINE_integer("together", 1, "points trained as one program", lower_bound=1)
_AT_A_TIME = flags.DEFINE_integer("at_a_time", 1, "processes at once, one a point", lower_bound=1)
_LIST = flags.DEFINE_bool("list", False, "print the command of each point and stop")
flags.mark_flag_as_required("config")


def main() -> None:
    """Runs what is missing and prints the table."""
    points = points_of(config_flags.get_config_filename(flags.FLAGS["config"]))
    arguments = config_arguments(sys.argv[1:])
    if _LIST.value:
        end_with_the_reader()
        commands = (command_of(arguments, point, _WORKDIR.value) for point in points)
        print("\n".join(shlex.join(["python", *command]) for command in commands))
        return
    from bert_jax.report import write_report

    if _AT_A_TIME.value > 1:
        import jax

        jax.config.update("jax_platforms", "cpu")  # the accelerators are for the processes that train
    said = run_points(
        _CONFIG.value,
        points,
        _WORKDIR.value,
        together=_TOGETHER.value,
        at_a_time=_AT_A_TIME.value,
        arguments=arguments,
    )
    print(f"{said}\nreport: {write_report(_WORKDIR.value)}")


if __name__ == "__main__":
    run_program(main)
