"""Fine-tuning on Korean benchmarks, by the paper's recipes (sections 4.1, 4.2, 4.4, 5.3).

    python -m experiments.train --config configs/korean.py:task=klue_nli --config.data_dir=KLUE \\
        --config.init_from=runs/korean --workdir runs/nli

Choices after the colon: task= (kornli, klue_nli: inference, 참/거짓/중립; nsmc: sentiment; korquad: questions;
klue_ner: names; korsts, klue_sts: similarity; kobest_boolq, kobest_copa, kobest_wic, kobest_sentineg,
kobest_hellaswag), size= (as pretrain.py's: no ``init_from``, but from scratch with the vocabulary ``tokenizer``).
``data_dir`` holds the official files. WordPiece and SentencePiece both do, cased: an uncased one takes Hangul apart.

Of files to predict the labels may be missing; the last column has the Korean name. Inference; sentiment; a question:

    echo '[{"premise": "나 출근했어", "hypothesis": "난 백수야"}]' > pair.json
    python -m experiments.predict --workdir runs/nli --input pair.json --output pair.tsv          # contradiction (거짓)
    printf 'document\\n이 영화 재미 없네요\\n' > review.txt
    python -m experiments.predict --workdir runs/nsmc --input review.txt --output review.tsv      # 0 (부정)
    echo '{"data": [{"paragraphs": [{"context": "한글은 1443년 만들어졌다.", "qas": [{"id": "1", \\
        "question": "한글이 창제된 연도는?"}]}]}]}' > question.json
    python -m experiments.predict --workdir runs/korquad --input question.json --output answers   # 1443년

Published for encoders of BASE's size: KoBERT NSMC 89.6, KorNLI 79.0, KorSTS 79.6; KLUE-BERT KLUE-NLI 81.6, KLUE-STS
90.9. By estimate minutes a set on one accelerator, KorNLI (940,000 pairs) a few hours.
"""

from ml_collections import ConfigDict

from configs import glue, ner, pretrain, shared, squad, swag

CLASSIFICATION = ("nsmc", "kornli", "klue_nli", "korsts", "klue_sts", "kobest_boolq", "kobest_wic", "kobest_sentineg")
CHOICE = ("kobest_copa", "kobest_hellaswag")


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose(
        "korean.py", choices, {"task": (*CLASSIFICATION, *CHOICE, "korquad", "klue_ner"), "size": ""}
    )
    task = chosen["task"]
    if task in CLASSIFICATION:
        config = glue.get_config()
    elif task in CHOICE:
        config = swag.get_config()
    elif task == "korquad":
        config = squad.get_config("version=1.1")
        config.update({"train": "KorQuAD_v1.0_train.json", "dev": "KorQuAD_v1.0_dev.json", "rules": "korquad"})
    else:
        config = ner.get_config("data=klue_ner")
    if task in CLASSIFICATION + CHOICE:
        config.data = ConfigDict({"source": "korean", "name": task})
    if chosen["size"]:
        try:
            config.update({"model": pretrain.model(chosen["size"]).to_dict() | {"dtype": "float32"}})
        except ValueError:
            raise ValueError(f"size={chosen['size']!r} is malformed; see configs/pretrain.py") from None
    config.update({"data_dir": ".", "tokenizer": ""})
    return config


def sweep(add) -> None:
    """The paper's grid (appendix A.3), three seeds of each."""
    shared.grid(add)
