"""A small BERT on the documentation that Python carries; experiments.quickstart builds the corpus and runs this.

    python -m experiments.quickstart --workdir runs/quickstart

Two stages as the paper's (appendix A.2: most steps on short sequences, the rest on long ones). 2 CPU cores: about 4
minutes; held-out masked-LM loss at least 15 % below the unigram baseline.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "pretraining"
    config.seed = 0
    config.corpus = ""
    config.objective = "mlm_nsp"
    config.model = ConfigDict(
        {
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 512,
            "max_position_embeddings": 128,
            # Few epochs over little text: there is nothing to regularise yet.
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
    )
    config.optimizer = ConfigDict({"learning_rate": 2e-3, "weight_decay": 0.01})
    config.warmup_ratio = 0.05
    config.batch_size = 64
    config.max_seq_length = 64
    config.phases = phases(2000)
    config.log_every_steps = 20
    config.eval_every_steps = 500
    config.checkpoint_every_steps = 1000
    config.eval_examples = 1024
    return config


def phases(train_steps: int) -> tuple[dict[str, int], ...]:
    """Nine tenths of the steps on short sequences, the rest on long ones."""
    short = max(1, train_steps * 9 // 10)
    stages = ({"train_steps": short}, {"train_steps": train_steps - short, "batch_size": 32, "max_seq_length": 128})
    return stages if train_steps > short else stages[:1]
