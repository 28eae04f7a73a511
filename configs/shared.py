"""What the recipes share: the choices after the colon, the encoder's fields, the paper's grid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import config_dict

LEARNING_RATES = (5e-5, 3e-5, 2e-5)  # appendix A.3
Options = str | Sequence[str]


def choose(file: str, choices: str, options: Mapping[str, Options]) -> dict[str, str]:
    """The value of every choice in ``key=value,...``.

    Args:
        options: of each key its values, the default first; or one string, the default of a choice that is free.

    Raises:
        ValueError: a key or a value that there is not, or a key without a value.
    """
    chosen = {key: values if isinstance(values, str) else values[0] for key, values in options.items()}
    for choice in filter(None, choices.split(",")):
        key, _, value = choice.partition("=")
        if key not in options:
            raise ValueError(f"{file} has no choice {key!r}; it has {', '.join(options)}")
        if not value:
            raise ValueError(f"{file}: the choice {key} has no value; write {key}=VALUE")
        values = options[key]
        if not isinstance(values, str) and value not in values:
            take = " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
            raise ValueError(f"{file} has no {key}={value!r}; take {take}")
        chosen[key] = value
    return chosen


def encoder() -> dict[str, Any]:
    """What a fine-tuning may change of the encoder it begins with; a field left empty is as it was there.

    ``dtype`` is that of the computation: bfloat16 on accelerators.
    """
    fields = {"dtype": "float32"}
    fields |= {name: config_dict.placeholder(bool) for name in ("remat", "scan_layers")}
    fields |= {name: config_dict.placeholder(float) for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")}
    return fields | {"attention_implementation": config_dict.placeholder(str)}


def loop(keep_last: int) -> dict[str, Any]:
    """How a run goes on and on what, which changes nothing of what is learned."""
    mesh = {"data": -1, "fsdp": 1, "tensor": 1}
    return {"mesh": mesh, "accumulation_steps": 1, "keep_last": keep_last, "skip_nonfinite": False}


def grid(add: Callable[..., None], learning_rates: Sequence[float] = LEARNING_RATES, seeds: int = 3) -> None:
    """Every learning rate with every seed; ``add(name=value, ...)`` adds a point."""
    for learning_rate in learning_rates:
        for seed in range(seeds):
            add(**{"optimizer.learning_rate": learning_rate, "seed": seed})
