"""How arrays are to lie on a mesh whose axes are ``data``, ``fsdp`` and ``tensor``; without one nothing is done."""

from typing import Any

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array

# Over these go the rows of a batch.
ROWS = ("data", "fsdp")
TENSOR = "tensor"


def on_mesh(x: Array, *axes: Any) -> Array:
    """A hint to the compiler: each axis of ``x`` cut over these axes of the mesh in use, None: whole."""
    if not {*ROWS, TENSOR} <= set(jax.sharding.get_abstract_mesh().axis_names):
        return x
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*axes))
