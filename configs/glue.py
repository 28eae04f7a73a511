"""Fine-tuning on GLUE (the paper, section 4.1, appendix A.3; Table 1).

    python -m experiments.train --config configs/glue.py:task=sts-b --config.data_dir=GLUE \\
        --config.init_from=runs/base --workdir runs/sts-b
    python -m experiments.sweep --config configs/glue.py:task=rte --config.init_from=runs/large --workdir runs/rte-sweep

Choices after the colon: task= (cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli). ``data_dir`` holds the official
files (a folder a task); left empty, TFDS's prepared set is taken. ``init_from`` is a run or a Hugging Face directory.

The paper's protocol: batch 32, 3 epochs, the learning rate of 5e-5, 4e-5, 3e-5, 2e-5 that is best on the dev set; for
LARGE several restarts, which the sweep's seeds are. On small sets ``optimizer.bias_correction=True`` and more epochs
are more stable (Mosbach et al. 2021). BASE: MNLI 84.6/83.4, QQP 71.2, QNLI 90.5, SST-2 93.5, CoLA 52.1, STS-B 85.8,
MRPC 88.9, RTE 66.4; by estimate minutes a set on one accelerator (``model.dtype=bfloat16``), MNLI and QQP half an
hour. STS-B with a 6-layer, 384-wide encoder takes about 8 minutes on two CPU cores.
"""

from ml_collections import ConfigDict, config_dict

from configs import shared

TASKS = ("mrpc", "cola", "sst-2", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
LEARNING_RATES = (5e-5, 4e-5, 3e-5, 2e-5)


def get_config(choices: str = "") -> ConfigDict:
    task = shared.choose("glue.py", choices, {"task": TASKS})["task"]
    config = ConfigDict({"task": "classification", "seed": 0, "data_dir": ""})
    config.data = {"source": "glue", "name": task, "allow_download": True}
    config.update({"init_from": config_dict.placeholder(str), "right_to_left_from": config_dict.placeholder(str)})
    config.model = shared.encoder()
    config.update({"batch_size": 32, "max_seq_length": 128, "train_epochs": 3.0, "warmup_ratio": 0.1})
    config.optimizer = {"learning_rate": 2e-5, "weight_decay": 0.01, "bias_correction": False}
    config.update({"doc_stride": config_dict.placeholder(int), "bilstm_size": 0, "concatenated": False})
    config.update(shared.loop(keep_last=1))
    config.update({"log_every_steps": 50, "eval_every_steps": 500, "checkpoint_every_steps": 500})
    return config


def sweep(add) -> None:
    """The paper's grid, three seeds of each."""
    shared.grid(add, LEARNING_RATES)
