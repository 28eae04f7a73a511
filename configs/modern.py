"""Pre-training as it is done today, for BERT's own encoder: no dropout, 30 % masked, full rows, warmup-stable-decay.

    python -m experiments.build_corpus --input 'text/*.jsonl.gz' --output corpora/modern --vocab_size 30522 --lowercase
    python -m experiments.train --config configs/modern.py --config.corpus=corpora/modern --workdir runs/modern

Choices after the colon: size= (base, and as pretrain.py's). Sources: more than 15 % masked (Wettig et al. 2022,
arXiv:2202.08005: 40 % for LARGE), 30 % and RoBERTa's practice in MosaicBERT (Portes et al. 2023, arXiv:2312.17482),
whose batches of 4,096 x 128, rate of 5e-4 and 70,000 steps these are; a constant rate before the decay in ModernBERT
(Warner et al. 2024, arXiv:2412.13663); no dropout in Cramming (Geiping & Goldstein 2022, arXiv:2212.14034). Rows of 512
tokens come in the decay, the last tenth. Their other encoders (rotary or linear positions, gated units, layer norms
first) are not these.

37 billion tokens: by estimate 6 hours on 8 A100 at 40 % of their peak. MosaicML's plain BERT-BASE by 70,000 such steps
with 15 % took 11.5 hours on 8 A100 to a mean of about 83.3 on GLUE (mosaicml/examples); by estimate this one
has the same or a little more; it has not been run yet. To train longer, delete the
checkpoints of the decay (the last 8 are kept) and go on with more steps.
"""

from ml_collections import ConfigDict

from configs import pretrain, shared

DECAY_RATIO = 0.1


def get_config(choices: str = "") -> ConfigDict:
    size = shared.choose("modern.py", choices, {"size": "base"})["size"]
    config = pretrain.get_config(f"size={size},objective=mlm")
    config.update({"model": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}})
    config.update({"model": {"attention_implementation": "auto"}})  # the fused kernels know no dropout
    config.update({"masking": {"rate": 0.3}})
    config.update({"fill": "across_documents", "short_seq_prob": 0.0, "batch_size": 4096})
    config.phases = phases(70_000)
    config.update({"schedule": "warmup_stable_decay", "decay_ratio": DECAY_RATIO})
    config.update({"warmup_steps": None, "warmup_ratio": 0.06})
    config.update({"optimizer": {"learning_rate": 5e-4, "b2": 0.98, "bias_correction": True}})
    config.update({"eval_every_steps": 2000, "checkpoint_every_steps": 1000, "keep_last": 8})
    return config


def phases(train_steps: int) -> tuple[dict[str, int], ...]:
    """Short rows while the rate is constant, long ones while it falls; as many tokens a step."""
    long = int(DECAY_RATIO * train_steps)
    return {"train_steps": train_steps - long}, {"train_steps": long, "max_seq_length": 512, "batch_size": 1024}
