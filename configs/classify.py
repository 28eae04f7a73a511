"""Classes or scores for one's own sentences or pairs, in the manner of GLUE (the paper, section 4.1).

A sentiment CSV with the columns review and stars, whose classes are found in it:

    python -m experiments.train --config configs/classify.py --config.init_from=runs/base --workdir runs/reviews \\
        --config.data.train=train.csv --config.data.dev=dev.csv --config.data.text_a=review --config.data.label=stars

Pairs with scores, one JSON object a line:

    python -m experiments.train --config configs/classify.py:kind=regression --config.init_from=runs/base \\
        --workdir runs/pairs --config.data.train=train.jsonl --config.data.dev=dev.jsonl \\
        --config.data.text_a=first --config.data.text_b=second --config.data.label=similarity

Then, for rows without labels:

    python -m experiments.predict --workdir runs/reviews --input new.csv --output predictions.tsv

Choices after the colon: kind= (classes, regression). Files are TSV, CSV or JSON, told by their names, relative to
``data_dir``. Without ``data.dev`` nothing is evaluated. ``data.header=False``: columns are numbers from 0. ``labels``
fixes the classes and their order. A long text is cut, and counted, or with ``doc_stride=64`` read in windows.

The paper's settings: batch 32, 3 epochs, a learning rate of 5e-5 to 2e-5 (``experiments.sweep`` tries them). On a few
hundred rows take more epochs and ``optimizer.bias_correction=True``; on accelerators ``model.dtype=bfloat16``. 10,000
sentences take BASE about two minutes on one, by estimate.
"""

from ml_collections import ConfigDict, config_dict

from configs import shared


def get_config(choices: str = "") -> ConfigDict:
    kind = shared.choose("classify.py", choices, {"kind": ("classes", "regression")})["kind"]
    config = ConfigDict(
        {"task": "classification", "seed": 0, "data_dir": ".", "labels": config_dict.placeholder(tuple)}
    )
    config.data = {"source": "table", "kind": kind, "label": "label", "table_format": "auto", "header": True}
    config.data.update({name: config_dict.placeholder(str) for name in ("train", "dev", "test")})
    config.data.update({name: config_dict.placeholder(str) for name in ("text_a", "text_b", "row_id")})
    config.update({"init_from": config_dict.placeholder(str), "right_to_left_from": config_dict.placeholder(str)})
    config.model = shared.encoder()
    config.update({"batch_size": 32, "max_seq_length": 128, "train_epochs": 3.0, "warmup_ratio": 0.1})
    config.optimizer = {"learning_rate": 2e-5, "weight_decay": 0.01, "bias_correction": False}
    config.update({"doc_stride": config_dict.placeholder(int), "bilstm_size": 0, "concatenated": False})
    config.update(shared.loop(keep_last=1))
    config.update({"log_every_steps": 50, "eval_every_steps": 500, "checkpoint_every_steps": 500})
    return config


def sweep(add) -> None:
    """The paper's grid (appendix A.3), three seeds of each."""
    shared.grid(add)
