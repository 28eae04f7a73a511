"""Whether a config's step fits accelerators that are not here, and what it would cost on which mesh.

    python -m experiments.check_mesh --config configs/pretrain.py:size=base,seq=128 --topology v5e-256

Compiles the training step for the devices of the topology: by the TPU compiler where ``pip install 'jax[tpu]'`` is
there (no chip is needed), else for as many simulated CPU devices. Prints for each mesh tried the memory of a device,
arithmetic, memory traffic, what is sent to other devices, and the time that these take at the chip's stated speeds;
then the cheapest mesh and the largest batch that fits on it. Without a corpus in the config, pre-training takes random
words. How the figures come about is said in ``experiments/mesh/costs.py``; no real accelerator was asked.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from experiments.mesh.topologies import Topology
from experiments.program import run_program

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py[:key=value,...]", lock_config=True)
flags.mark_flag_as_required("config")
_TOPOLOGY = flags.DEFINE_string("topology", None, "chip and how many: v5e-8, v5e-256, v6e-8, h100-8", required=True)
_MESHES = flags.DEFINE_string("meshes", None, "those to try: 'data=8 data=2,fsdp=4'; default: the usual ones")
_SIMULATE = flags.DEFINE_boolean("simulate", False, "on CPU devices, although there is a compiler for the chip")
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", 30522, "word pieces of the random text, where there is no corpus", lower_bound=100
)
_LARGEST = flags.DEFINE_boolean("largest", True, "also look for the largest batch that fits the cheapest mesh")
_OUTPUT = flags.DEFINE_string("output", None, "a JSON file for everything found")


def main() -> None:
    topology = Topology.of(_TOPOLOGY.value, _SIMULATE.value)
    topology.prepare()
    # Only now, for they start JAX.
    from bert_jax.data.writing import write_json
    from experiments.mesh.page import terminal_table
    from experiments.mesh.search import check

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        corpus = (Path(scratch) / "corpus", _VOCAB_SIZE.value)
        found = check(_CONFIG.value, topology, _MESHES.value, corpus, largest=_LARGEST.value, say=say)
    print(terminal_table(found))
    if _OUTPUT.value:
        write_json(Path(_OUTPUT.value), found)


if __name__ == "__main__":
    run_program(main)
