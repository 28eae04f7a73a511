"""RoBERTa (Liu et al. 2019, arXiv:1907.11692): no next sentence, full sentences, large batches, byte-level BPE.

    python -m experiments.build_corpus --input 'text/*.jsonl.gz' --output corpora/roberta \\
        --tokenizer_kind byte_bpe --vocab_size 50265
    python -m experiments.train --config configs/roberta.py:size=base --config.corpus=corpora/roberta \\
        --workdir runs/roberta

Choices after the colon: size= (base, large, and as pretrain.py's). Masks are drawn anew for every step, as always here.
A row is filled from one document after the other (its FULL-SENTENCES, without its mark between documents). Adam, its
rates and steps are its Table 9's, but for the gradient, which is clipped to norm 1 here and not at all there.
``accumulation_steps`` cuts the batch where memory is short.

500,000 steps of 8,192 x 512 on 160 GB of text: BASE by estimate two days on 64 A100; LARGE took the authors a day on
1,024 V100 for 100,000 steps. Dev sets (fairseq's README): BASE MNLI 87.6, SST-2 94.8; LARGE MNLI 90.2, SST-2 96.4,
SQuAD 1.1 F1 94.6. On BERT's own text, 31,000 steps at a rate of 1e-3 (Table 3): BASE MNLI 84.6; set ``train_steps``,
``optimizer.learning_rate`` and ``warmup_steps`` (which it does not say; 6 % is 1,900).
"""

from ml_collections import ConfigDict

from configs import pretrain, shared

RATES = {"base": (6e-4, 24_000), "large": (4e-4, 30_000)}  # and the steps of the warm-up


def get_config(choices: str = "") -> ConfigDict:
    size = shared.choose("roberta.py", choices, {"size": "base"})["size"]
    learning_rate, warmup_steps = RATES.get(size, RATES["base"])
    config = pretrain.get_config(f"size={size},seq=512,objective=mlm")
    config.update({"model": {"type_vocab_size": 1, "layer_norm_eps": 1e-5}})
    config.update({"fill": "across_documents", "short_seq_prob": 0.0, "batch_size": 8192})
    config.update({"train_steps": 500_000, "warmup_steps": warmup_steps})
    config.update({"optimizer": {"learning_rate": learning_rate, "b2": 0.98, "bias_correction": True}})
    return config
