"""A BERT in a day on one GPU, after Izsak et al. 2021 (How to Train BERT with an Academic Budget, arXiv:2104.07705).

    python -m experiments.build_corpus --input 'text/*.txt.gz' --output corpora/day --vocab_size 30522 --lowercase
    python -m experiments.train --config configs/one_day.py --config.corpus=corpora/day --workdir runs/day

Choices after the colon: size= (base, and as pretrain.py's). Theirs: masked LM alone, rows of up to 128 tokens, batches
of 4,096, Adam with betas 0.9 and 0.98, a rate of 1e-3, 6 % of warm-up, then linear to 0 when the time is over; LARGE
with its layer norms first, 24 hours on 8 Titan V, competitive with BERT-BASE on GLUE (MNLI 84.4/83.8). Ours stand last,
which has borne that rate in BASE (RoBERTa's Table 3), so BASE it is; and no dropout, as in Cramming (Geiping &
Goldstein 2022, arXiv:2212.14034), which had a day on one GPU.

37,000 steps, 19 billion tokens: by estimate 24 hours on one A100 at 40 % of its peak; elsewhere set ``train_steps`` by
the tokens a second that ``train`` shows. By estimate MNLI 82 to 84; it has not been run yet. Positions beyond 128 learn
nothing: fine-tune on texts no longer than that.
"""

from ml_collections import ConfigDict

from configs import pretrain, shared


def get_config(choices: str = "") -> ConfigDict:
    size = shared.choose("one_day.py", choices, {"size": "base"})["size"]
    config = pretrain.get_config(f"size={size},seq=128,objective=mlm")
    config.update({"model": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}})
    config.update({"model": {"attention_implementation": "auto"}})  # the fused kernels know no dropout
    config.update({"fill": "across_documents", "short_seq_prob": 0.0, "batch_size": 4096, "accumulation_steps": 16})
    config.update({"train_steps": 37_000, "warmup_steps": None, "warmup_ratio": 0.06})
    config.update({"optimizer": {"learning_rate": 1e-3, "b2": 0.98, "bias_correction": True}})
    config.update({"eval_every_steps": 2000, "checkpoint_every_steps": 1000})
    return config
