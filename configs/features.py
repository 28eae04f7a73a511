"""Feature-based named entities (the paper, section 5.3, Table 7's lower half): a BiLSTM on an encoder that stays as is.

    python -m experiments.train --config configs/features.py:data=conll2003,features=concat_last_four \\
        --config.data_dir=CONLL --config.init_from=runs/base --config.features_dir=features --workdir runs/features

Choices after the colon: features= (embeddings, second_to_last, last, weighted_sum_last_four, concat_last_four,
weighted_sum_all); data= and context= as in ner.py. ``init_from`` is the run or the Hugging Face directory whose
features are taken. They are written to ``features_dir`` on first use and read from there ever after; with
``stored_layers`` (0,1,...,12) all rows of the table share one. ``experiments.extract_features --config ...`` writes
them without training.

A two-layer BiLSTM of 768 units in each direction and a dense layer; the paper says no more: batch, rate and epochs are
ours. CoNLL-2003 dev F1 of BASE: embeddings 91.0, second to last 95.6, last 94.9, weighted sum of the last four 95.9,
their concatenation 96.1, weighted sum of all twelve 95.5. By estimate 10 minutes on one accelerator, 1 GB a layer.
"""

from ml_collections import ConfigDict

from configs import ner, shared

FEATURES = ("concat_last_four", "embeddings", "second_to_last", "last", "weighted_sum_last_four", "weighted_sum_all")


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose("features.py", choices, {"features": FEATURES, **ner.CHOICES})
    features = chosen.pop("features")
    config = ner.get_config(",".join(f"{key}={value}" for key, value in chosen.items()))
    for name in ("bilstm_size", "concatenated", "right_to_left_from"):
        del config[name]
    config.update({"task": "features", "features": features, "features_dir": "", "features_dtype": "float32"})
    config.update({"stored_layers": (), "bilstm_size": 768})
    config.optimizer = {"learning_rate": 1e-3, "weight_decay": 0.0, "bias_correction": True}
    config.train_epochs = 10.0
    return config


def sweep(add) -> None:
    """The mean of five runs, as the paper's."""
    shared.grid(add, (1e-3,), seeds=5)
