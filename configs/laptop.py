"""Pre-training in minutes on two CPU cores, for the paper's ablations at a laptop's size (Tables 5, 6, 8, Figure 5).

    python -m experiments.train --config configs/laptop.py:objective=mlm --config.corpus=DIR --workdir runs/small-no-nsp

Choices after the colon: size=, objective=, masking= as in pretrain.py; the default size is two layers of 128. Two
stages as the paper's: three quarters of the steps on 64 tokens, the rest on 128. ``experiments.paper --scale small``
has the runs, their corpus (two million words) and how long they take.

Otherwise as pretrain.py but for what a run of minutes needs and one of days does not: Adam with bias correction, a
larger rate and larger initial weights, an output bias that knows how frequent each piece is, no dropout.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import pretrain, quickstart, shared

STEPS = 800
CHOICES = {key: pretrain.CHOICES[key] for key in ("objective", "masking")} | {"size": "L2_H128_A4"}


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose("laptop.py", choices, CHOICES)
    config: Any = pretrain.get_config(",".join(f"{key}={value}" for key, value in chosen.items()))
    config.model.update({"dtype": "float32", "scan_layers": False, "max_position_embeddings": 128})
    config.model.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.05})
    config.optimizer.update({"learning_rate": 3e-3, "b2": 0.98, "eps": 1e-8, "bias_correction": True})
    config.update({"unigram_bias": True, "batch_size": 32, "max_seq_length": 64, "warmup_steps": STEPS // 20})
    config.phases = quickstart.phases(STEPS)
    config.update({"eval_examples": 2000, "keep_last": 1})
    config.update({"log_every_steps": 50, "eval_every_steps": STEPS, "checkpoint_every_steps": STEPS})
    return config
