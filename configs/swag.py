"""Multiple choice: SWAG (the paper, section 4.4, Table 4), and HellaSwag in its manner.

    python -m experiments.train --config configs/swag.py --config.data_dir=SWAG --config.init_from=runs/large \\
        --workdir runs/swag
    python -m experiments.predict --workdir runs/swag --input test --output swag.tsv

Choices after the colon: data= (swag, hellaswag). ``data_dir`` holds SWAG's train.csv, val.csv and test.csv, or
HellaSwag's hellaswag_train.jsonl and hellaswag_val.jsonl; ``data.train``, ``data.dev`` and ``data.test`` name others
(HellaSwag also in its text form, six lines an item, and packed by gzip or bzip2). An empty ``data.dev`` trains without.

The paper's protocol: 3 epochs, learning rate 2e-5, batch 16. Each ending is sentence B to the context as sentence A;
``start=ending`` puts the started phrase in front of the endings, as PyTorch's port does (the paper does not say).
SWAG dev accuracy: BASE 81.6, LARGE 86.6 (test 86.3). 13,800 steps of 64 sequences: two hours for LARGE on one
accelerator by estimate (``model.dtype=bfloat16``).
"""

from ml_collections import ConfigDict, config_dict

from configs import shared


def get_config(choices: str = "") -> ConfigDict:
    source = shared.choose("swag.py", choices, {"data": ("swag", "hellaswag")})["data"]
    config = ConfigDict({"task": "choice", "seed": 0, "data_dir": ".", "start": "context"})
    config.data = {"source": source, **{split: config_dict.placeholder(str) for split in ("train", "dev", "test")}}
    config.update({"init_from": config_dict.placeholder(str), "right_to_left_from": config_dict.placeholder(str)})
    config.model = shared.encoder()
    config.update({"batch_size": 16, "max_seq_length": 128, "train_epochs": 3.0, "warmup_ratio": 0.1})
    config.optimizer = {"learning_rate": 2e-5, "weight_decay": 0.01, "bias_correction": False}
    config.update({"bilstm_size": 0, "concatenated": False})
    config.update(shared.loop(keep_last=1))
    config.update({"log_every_steps": 50, "eval_every_steps": 1000, "checkpoint_every_steps": 1000})
    return config


def sweep(add) -> None:
    """The paper's grid (appendix A.3), three seeds of each."""
    shared.grid(add)
