"""ALBERT (Lan et al. 2020, arXiv:1909.11942): shared layers, small embeddings, sentence order, n-grams, SentencePiece.

    python -m experiments.build_corpus --input 'text/*.txt.gz' --output corpora/albert \\
        --tokenizer_kind sentencepiece --vocab_size 30000 --lowercase
    python -m experiments.train --config configs/albert.py:size=base --config.corpus=corpora/albert \\
        --workdir runs/albert

Choices after the colon: size= (base, large, xlarge, xxlarge; Table 1). All layers share one set of parameters, so that
BASE has 12 million, but it computes as much as BERT: 125,000 steps of 4,096 x 512 by LAMB at a rate of 0.00176 (section
4.1), on 64 to 512 TPU v3; by estimate a day on 16 A100 for BASE. ``accumulation_steps`` cuts the batch where
memory is short.

Dev sets (Table 2): BASE MNLI 81.6, SST-2 90.3, SQuAD 1.1 F1 89.3; xxlarge MNLI 88.0, SST-2 95.2, F1 94.1. By 1,500,000
steps on more text without dropout (set both to 0) xxlarge came to MNLI 90.8, SST-2 96.9, F1 94.8 (Tables 9, 10).
Version 2 (google-research/albert), so too, BASE for 10 million steps: BASE MNLI 84.6, F1 90.2.
"""

from ml_collections import ConfigDict

from configs import pretrain, shared

SIZES = {"base": "L12_H768", "large": "L24_H1024", "xlarge": "L24_H2048_A16", "xxlarge": "L12_H4096"}


def get_config(choices: str = "") -> ConfigDict:
    size = shared.choose("albert.py", choices, {"size": tuple(SIZES)})["size"]
    config = pretrain.get_config(f"size={SIZES[size]},seq=512,objective=mlm_sop,masking=ngram,optimizer=lamb")
    config.update({"model": {"embedding_size": 128, "num_hidden_groups": 1, "hidden_act": "gelu_new"}})
    config.update({"model": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}})
    config.update({"phases": (), "batch_size": 4096, "train_steps": 125_000, "warmup_steps": 3125})
    config.update({"optimizer": {"learning_rate": 0.00176}})
    return config
