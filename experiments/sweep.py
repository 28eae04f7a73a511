"""All points of a config's sweep, one after the other: learning rates, seeds, or anything else.

    python -m experiments.sweep --config configs/glue.py:task=rte --config.init_from=runs/large --workdir runs/rte-sweep

A config has a sweep if its file has a function ``sweep(add)``: a call ``add(**{"optimizer.learning_rate": 5e-5})``
is a point. Every point is a run of its own in a folder of the workdir. A stopped sweep goes on where it was: a point
that is finished is not run again, and a config that differs in anything but the points is refused. The table at the end
has a line for each setting but the seed: mean, standard deviation, median, best and number of runs of the figure that
selects, and how many runs learned nothing. ``sweep.json`` holds the config, and of every finished point the figures,
versions and hardware.
"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from experiments.program import run_program
from experiments.sweep_points import name_of, points_of, run_points

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py[:key=value,...]", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "directory or URL of the sweep, a folder a point", required=True)
_LIST = flags.DEFINE_bool("list", False, "print the points and stop")
flags.mark_flag_as_required("config")


def main() -> None:
    """Runs what is missing and prints the table."""
    points = points_of(config_flags.get_config_filename(flags.FLAGS["config"]))
    if _LIST.value:
        print("\n".join(name_of(point) for point in points))
        return
    print(run_points(_CONFIG.value, points, _WORKDIR.value))


if __name__ == "__main__":
    run_program(main)
