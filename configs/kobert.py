"""A Korean BERT from raw text, in the manner of KoBERT (SKTBrain): BASE with 8,002 SentencePiece pieces, cased.

    python -m experiments.build_corpus --input 'kowiki/*.jsonl.gz' --language ko --output corpora/kowiki \\
        --tokenizer_kind sentencepiece --vocab_size 8002
    python -m experiments.train --config configs/kobert.py --config.corpus=corpora/kowiki --workdir runs/kobert
    python -m experiments.train --config configs/korean.py:task=nsmc --config.data_dir=NSMC \\
        --config.init_from=runs/kobert --workdir runs/nsmc

Choices after the colon: size= (base, and as pretrain.py's). KoBERT has 92 million parameters and read, by its
README, the Korean Wikipedia, 5 million sentences or 54 million words, on 32 V100; an early README of the same weights
adds news, 20 million sentences, so expect less of Wikipedia alone. Its rates and steps are not known here: they are the
paper's (appendix A.2), but 150,000 steps, by estimate 50 epochs of that Wikipedia, where the paper has 40 of its text.

By estimate 8 hours on one A100 at 40 % of its peak. Published for KoBERT: NSMC 90.1 (its README), 89.6; KorNLI 79.0,
KorSTS 79.6 (KoELECTRA's). This recipe has not been run yet. For more text raise ``vocab_size`` and the steps.
"""

from ml_collections import ConfigDict

from configs import pretrain, shared


def get_config(choices: str = "") -> ConfigDict:
    size = shared.choose("kobert.py", choices, {"size": "base"})["size"]
    config = pretrain.get_config(f"size={size}")
    config.phases = ({"train_steps": 135_000}, {"train_steps": 15_000, "max_seq_length": 512})
    return config
