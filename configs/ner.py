"""Named entities by fine-tuning (the paper, section 5.3, Table 7's upper half; appendix A.3).

    python -m experiments.train --config configs/ner.py:data=conll2003 --config.data_dir=CONLL \\
        --config.init_from=runs/base --workdir runs/ner
    python -m experiments.predict --workdir runs/ner --input words.txt --output tagged.txt

Choices after the colon: data= (conll2003, wnut17, germeval2014, klue_ner, or columns: any file with a word and a tag a
line, whose columns ``format.*`` says), context= (document, sentence; auto: by the files). ``data_dir`` holds the files
named below; they can be others (``train``, ``dev``, ``test``). ``init_from`` is a run or a Hugging Face directory,
cased for the paper's figures.

The paper: maximal document context, the label at a word's first piece, no CRF, batch 16 or 32, 5e-5, 3e-5 or 2e-5, 2 to
4 epochs, mean of five runs. In document context an example is a window of about 14 sentences of CoNLL-2003, so 2 of
them are the paper's 32 sentences. CoNLL-2003 F1, dev / test: BASE 96.4 / 92.4, LARGE 96.6 / 92.8; sentences alone about
a point less. By estimate 5 minutes on one accelerator (``model.dtype=bfloat16``).
"""

from ml_collections import ConfigDict, config_dict

from configs import shared

FILES = {
    "conll2003": ("eng.train", "eng.testa", "eng.testb"),
    "wnut17": ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    "germeval2014": ("NER-de-train.tsv", "NER-de-dev.tsv", "NER-de-test.tsv"),
    "klue_ner": ("klue-ner-v1.1_train.tsv", "klue-ner-v1.1_dev.tsv", ""),
    "columns": ("train.txt", "dev.txt", "test.txt"),
}
DOCUMENTS = ("conll2003", "germeval2014")  # whose files say where a document begins
CHOICES = {"data": tuple(FILES), "context": ("auto", "document", "sentence")}


def get_config(choices: str = "") -> ConfigDict:
    chosen = shared.choose("ner.py", choices, CHOICES)
    data, context = chosen["data"], chosen["context"]
    if context == "auto":
        context = "document" if data in DOCUMENTS else "sentence"
    document = context == "document"
    config = ConfigDict({"task": "tagging", "seed": 0, "data_dir": "", "format": data, "context": context})
    config.update(dict(zip(("train", "dev", "test"), FILES[data], strict=True)))
    if data == "columns":
        del config.format  # fields instead of a name
        config.format = {"token": 0, "tag": -1, "documents": "auto", "characters": False, "entities": True}
        config.format.update({"separator": config_dict.placeholder(str), "comment": config_dict.placeholder(str)})
    config.update({"init_from": config_dict.placeholder(str), "right_to_left_from": config_dict.placeholder(str)})
    config.model = shared.encoder()
    config.update({"batch_size": 2 if document else 32, "max_seq_length": 512 if document else 128})
    config.update({"train_epochs": 4.0, "warmup_ratio": 0.1, "stride": config_dict.placeholder(int)})
    config.optimizer = {"learning_rate": 5e-5, "weight_decay": 0.01, "bias_correction": False}
    config.update({"join_words": True, "bilstm_size": 0, "concatenated": False})
    config.update(shared.loop(keep_last=1))
    config.update({"log_every_steps": 50, "eval_every_steps": 500, "checkpoint_every_steps": 500})
    return config


def sweep(add) -> None:
    """The paper's grid (appendix A.3), five seeds of each."""
    shared.grid(add, seeds=5)
