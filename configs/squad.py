"""Question answering (the paper, sections 4.2 and 4.3, Tables 2 and 3).

    python -m experiments.train --config configs/squad.py:version=2.0 --config.data_dir=SQUAD \\
        --config.init_from=runs/large --workdir runs/squad2
    python -m experiments.predict --workdir runs/squad2 --input SQUAD/dev-v2.0.json --output answers

Choices after the colon: version= (1.1, 2.0), stage= (squad, triviaqa). ``data_dir`` holds the official files; left
empty, TFDS's prepared set is taken. ``train=`` and ``dev=`` name other files in their layout (XQuAD, KorQuAD).

The paper's protocol: 1.1: batch 32, 3 epochs; 2.0: batch 48, 2 epochs, the threshold of "no answer" tuned on the dev
set; learning rate 5e-5. Dev EM/F1 of 1.1: BASE 80.8/88.5, LARGE 84.1/90.9; of 2.0: LARGE 78.7/81.9. LARGE takes about
30 minutes on a Cloud TPU (the original's README); ``model.dtype=bfloat16`` is for accelerators.

TriviaQA before SQuAD (LARGE 84.2/91.1) is two runs: the first learns from ``data_dir``/triviaqa-train.json, which is
TriviaQA-Wiki in SQuAD's layout (the paper takes the first 400 tokens of those documents that hold an answer there), for
as many epochs (the paper does not say how many), and the second begins with it:

    python -m experiments.train --config configs/squad.py:version=1.1,stage=triviaqa --config.data_dir=SQUAD \\
        --config.init_from=runs/large --workdir runs/triviaqa
    python -m experiments.train --config configs/squad.py:version=1.1 --config.data_dir=SQUAD \\
        --config.init_from=runs/triviaqa --workdir runs/squad1
"""

from ml_collections import ConfigDict, config_dict

from configs import shared

# batch, epochs
RECIPES = {"2.0": (48, 2.0), "1.1": (32, 3.0)}


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose("squad.py", choices, {"version": tuple(RECIPES), "stage": ("squad", "triviaqa")})
    version = chosen["version"]
    batch_size, epochs = RECIPES[version]
    config = ConfigDict({"task": "squad", "seed": 0, "data_dir": "", "version": version, "allow_download": True})
    # Two placeholders: one for both would be one field.
    config.train, config.dev = config_dict.placeholder(str), config_dict.placeholder(str)
    if chosen["stage"] == "triviaqa":
        config.train = "triviaqa-train.json"
    config.rules = config_dict.placeholder(str)
    config.update({"init_from": config_dict.placeholder(str), "right_to_left_from": config_dict.placeholder(str)})
    config.model = shared.encoder()
    config.update({"batch_size": batch_size, "max_seq_length": 384, "train_epochs": epochs, "warmup_ratio": 0.1})
    config.optimizer = {"learning_rate": 5e-5, "weight_decay": 0.01, "bias_correction": False}
    config.update({"doc_stride": 128, "max_query_length": 64, "n_best_size": 20, "max_answer_length": 30})
    config.update({"original_text": False, "bilstm_size": 0, "concatenated": False})
    config.update(shared.loop(keep_last=1))
    config.update({"log_every_steps": 50, "eval_every_steps": 1000, "checkpoint_every_steps": 1000})
    return config


def sweep(add) -> None:
    """The paper's grid (appendix A.3), three seeds of each."""
    shared.grid(add)
