"""A bidirectional LSTM over packed sequences (Hochreiter & Schmidhuber 1997; Graves & Schmidhuber 2005)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int


class BiLSTM(nn.Module):
    """`num_layers` layers of `hidden_size` units in each direction; the output is twice as wide.

    Parameters of layer i, in each direction: {forward,backward}_{i}/{input_kernel [d, 4h], hidden_kernel [h, 4h],
    bias [4h]}, gates in the order input, forget, cell, output. Kernels begin as Glorot's and orthogonal, the bias as
    zeros but 1 for the forget gate (Jozefowicz et al. 2015).
    """

    hidden_size: int
    num_layers: int = 1

    @nn.compact
    def __call__(self, x: Float[Array, "r t d"], sequence_ids: Int[Array, "r t"]) -> Float[Array, "r t two_h"]:
        """The state begins anew with each packed sequence, so it gets the same numbers as alone."""
        same = sequence_ids[:, 1:] == sequence_ids[:, :-1]
        edge = jnp.zeros((x.shape[0], 1), bool)
        goes_on = {"forward": jnp.concatenate([edge, same], axis=1), "backward": jnp.concatenate([same, edge], axis=1)}
        for i in range(self.num_layers):
            outputs = [
                _Lstm(self.hidden_size, backward=name == "backward", name=f"{name}_{i}")(x, goes_on[name])
                for name in ("forward", "backward")
            ]
            x = jnp.concatenate(outputs, axis=-1)
        return x


class _Lstm(nn.Module):
    """One direction of one layer."""

    hidden_size: int
    backward: bool

    @nn.compact
    def __call__(self, x: Float[Array, "r t d"], goes_on: Bool[Array, "r t"]) -> Float[Array, "r t h"]:
        """`goes_on` is False where a sequence begins (in this direction)."""
        size = self.hidden_size
        input_kernel = self.param(
            "input_kernel", nn.initializers.glorot_uniform(), (x.shape[-1], 4 * size), jnp.float32
        )
        hidden_kernel = self.param("hidden_kernel", _orthogonal, (size, 4 * size), jnp.float32)
        bias = self.param("bias", _forget_bias, (4 * size,), jnp.float32)
        # What the inputs bring is one product for all columns; only the recurrence is a loop.
        inputs = jnp.einsum("rtd,dg->trg", x, input_kernel.astype(x.dtype)) + bias.astype(x.dtype)

        def step(state: tuple[Array, Array], item: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            gates, going_on = item
            hidden, cell = (jnp.where(going_on[:, None], part, jnp.zeros((), part.dtype)) for part in state)
            gates = gates + hidden @ hidden_kernel.astype(x.dtype)
            enter, keep, new, leave = jnp.split(gates, 4, axis=-1)
            cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (hidden, cell), hidden

        zeros = jnp.zeros((x.shape[0], size), x.dtype)
        _, outputs = jax.lax.scan(step, (zeros, zeros), (inputs, goes_on.T), reverse=self.backward)
        return outputs.swapaxes(0, 1)


def _orthogonal(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Under ``vmap`` one after another: two batches of QR factorizations at once wait for each other without end on a
    CPU of two cores (jaxlib 0.10: each holds a thread of the pool that it waits for)."""
    return jax.custom_batching.sequential_vmap(lambda one: nn.initializers.orthogonal()(one, shape, dtype))(key)


def _forget_bias(_key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    size = shape[0] // 4
    return jnp.concatenate([jnp.zeros(size, dtype), jnp.ones(size, dtype), jnp.zeros(2 * size, dtype)])
