"""Fine-tuning a model of configs/laptop.py in seconds on two CPU cores: the paper's tasks at a laptop's size.

    python -m experiments.sweep --config configs/laptop_tasks.py:task=sts-b --config.data_dir=small/glue \\
        --config.init_from=runs/small-base --workdir runs/small-sts-b

Choices after the colon: task= (sts-b, qnli, squad1, squad2, hellaswag, wnut17), features= (as in features.py: WNUT-17
on frozen features). ``data_dir`` holds what ``experiments.small_data`` writes of the task. The recipes are the task's
own but for what thousands of rows and so small a model need: more and larger steps, unbiased from the first (Mosbach et
al. 2021). Three seeds.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import features, glue, ner, shared, squad, swag

# Recipe, its choices, epochs, learning rate: with less of both answers and names stay unlearned.
TASKS = {
    "sts-b": (glue, "task=sts-b", 2.0, 5e-4),
    "qnli": (glue, "task=qnli", 2.0, 5e-4),
    "squad1": (squad, "version=1.1", 2.0, 2e-3),
    "squad2": (squad, "version=2.0", 2.0, 2e-3),
    "hellaswag": (swag, "data=hellaswag", 1.0, 5e-4),
    "wnut17": (ner, "data=wnut17", 6.0, 1e-3),
}


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose("laptop_tasks.py", choices, {"task": tuple(TASKS), "features": ("none", *features.FEATURES)})
    recipe, own, epochs, learning_rate = TASKS[chosen["task"]]
    frozen = chosen["features"] != "none"
    if frozen and recipe is not ner:
        raise ValueError(f"laptop_tasks.py has no features of task={chosen['task']}; take task=wnut17")
    config: Any = features.get_config(f"{own},features={chosen['features']}") if frozen else recipe.get_config(own)
    config.update({"batch_size": 32, "max_seq_length": 128, "train_epochs": epochs})
    config.optimizer.update({"learning_rate": learning_rate, "bias_correction": True})
    if frozen:
        config.update({"bilstm_size": 128})
    else:
        config.model.update({"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})
    if recipe is squad:
        config.update({"doc_stride": 96, "max_query_length": 32})
    return config


def sweep(add) -> None:
    """The recipe's learning rate, three seeds."""
    for seed in range(3):
        add(seed=seed)
