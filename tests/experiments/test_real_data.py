"""Every recipe of fine-tuning on the real data sets at hand: read, trained for some steps, evaluated and predicted.

The encoder is tiny and begins from scratch: that every set is read and gets its predictions is what counts.
Where a set came without its training part, the held-out part stands in for it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

import bert_jax
from bert_jax.data.tables import read_rows
from bert_jax.data.text_files import Problems
from bert_jax.data.vocabulary import learn_sentencepiece, learn_wordpiece
from bert_jax.training.evaluate import predict_workdir
from tests.tiny_model import TINY

pytestmark = pytest.mark.slow

NSMC = "korean/nsmc_reconstructed"


class Case(NamedTuple):
    """recipe: of ``configs``, with its choices. files: official name -> file of the shared data; the last is predicted.

    figure: that selects. vocabulary: English is the released one. fields: further ones of the config.
    """

    recipe: str
    files: dict[str, str]
    figure: str
    vocabulary: str = "english"
    fields: Mapping[str, Any] = MappingProxyType({})


def splits(pattern: str, folder: str, *names: str) -> dict[str, str]:
    """Files that have their official names, * for the split."""
    return {pattern.replace("*", name): f"{folder}/{pattern.replace('*', name)}" for name in names}


def twice(train: str, dev: str, path: str) -> dict[str, str]:
    """One file for both splits."""
    return {train: path, dev: path}


V1, V2, XQUAD = "squad/dev-v1.1-subset.json", "squad/dev-v2.0-half.json", "squad/xquad/xquad."
WNUT = splits("*", "ner/wnut17", "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
GERMEVAL = {
    f"NER-de-{name}.tsv": f"ner/germeval2014/NER-de-{file}.tsv" for name, file in (("train", "test"), ("dev", "dev"))
}
OWN = {"data.train": "train.tsv", "data.dev": "dev.tsv", "data.label": "score"}
PIECES, SENTENCES = "wordpiece", "sentencepiece"
CASES = {
    "sts-b": Case("glue:task=sts-b", splits("*.tsv", "glue/STS-B", "train", "dev"), "score"),
    "wnli": Case("glue:task=wnli", splits("*.tsv", "glue/WNLI", "train", "dev"), "score"),
    "qnli": Case("glue:task=qnli", twice("train.tsv", "dev.tsv", "glue/QNLI/dev.tsv"), "score"),
    "own table": Case(
        "classify:kind=regression",
        splits("*.tsv", "glue/STS-B", "train", "dev"),
        "score",
        fields=OWN | {"data.text_a": "sentence1", "data.text_b": "sentence2"},
    ),
    "squad 1.1": Case("squad:version=1.1", {"train-v1.1.json": f"{XQUAD}en.json", "dev-v1.1.json": V1}, "f1"),
    "squad 2.0": Case("squad:version=2.0", twice("train-v2.0.json", "dev-v2.0.json", V2), "best_f1"),
    "xquad-de": Case("squad:version=1.1", twice("train-v1.1.json", "dev-v1.1.json", f"{XQUAD}de.json"), "f1"),
    "hellaswag": Case(
        "swag:data=hellaswag",
        {"items.txt.bz2": "hellaswag/hellaswag_val_full.txt.bz2"},
        "accuracy",
        fields={"data.train": "items.txt.bz2", "data.dev": "items.txt.bz2"},
    ),
    "wnut17": Case("ner:data=wnut17", WNUT, "f1"),
    "germeval2014": Case("ner:data=germeval2014", GERMEVAL, "f1"),
    "features": Case("features:data=wnut17", WNUT, "f1", fields={"bilstm_size": 32}),
    "nsmc": Case("korean:task=nsmc", splits("ratings_*.txt", NSMC, "train", "test"), "accuracy", PIECES),
    "kornli": Case(
        "korean:task=kornli",
        {"multinli.train.ko.tsv": "korean/kornli/xnli.test.ko.tsv", "xnli.dev.ko.tsv": "korean/kornli/xnli.dev.ko.tsv"},
        "accuracy",
        SENTENCES,
    ),
    "klue_nli": Case(
        "korean:task=klue_nli",
        twice("klue-nli-v1.1_train.json", "klue-nli-v1.1_dev.json", "korean/klue_nli/klue-nli-v1.1_dev.json"),
        "accuracy",
        PIECES,
    ),
    "klue_sts": Case(
        "korean:task=klue_sts",
        twice("klue-sts-v1.1_train.json", "klue-sts-v1.1_dev.json", "korean/klue_sts/klue-sts-v1.1_dev.json"),
        "score",
        SENTENCES,
    ),
    "korsts": Case(
        "korean:task=korsts", splits("sts-*.tsv", "korean/korsts", "train", "dev", "test"), "spearman", PIECES
    ),
    "korquad": Case(
        "korean:task=korquad",
        twice("KorQuAD_v1.0_train.json", "KorQuAD_v1.0_dev.json", "korean/korquad1/KorQuAD_v1.0_dev.json"),
        "f1",
        SENTENCES,
    ),
    "klue_ner": Case(
        "korean:task=klue_ner",
        twice("klue-ner-v1.1_train.tsv", "klue-ner-v1.1_dev.tsv", "korean/klue_ner/klue-ner-v1.1_dev.tsv"),
        "f1",
        PIECES,
    ),
    **{
        f"kobest_{name.lower()}": Case(
            f"korean:task=kobest_{name.lower()}",
            splits("*.tsv", f"korean/kobest/{name}", "test", "train", "dev"),
            "macro_f1",
            SENTENCES,
        )
        for name in ("BoolQ", "WiC", "SentiNeg", "COPA", "HellaSwag")
    },
}


@pytest.fixture(scope="module")
def vocabularies(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The released English vocabulary, and both kinds learned from the Korean reviews."""
    directory = tmp_path_factory.mktemp("vocabularies")
    reviews = read_rows(shared_data / NSMC / "ratings_test.txt", ["document"], Problems(), table_format="tsv")
    texts = [cells[0] or "" for _, cells in reviews]
    learn_wordpiece(texts, 2000, lowercase=False).save(directory / "wordpiece")
    learn_sentencepiece(texts, 2000).save(directory / "sentencepiece")
    (directory / "english").mkdir()
    vocabulary = (shared_data / "vocab/bert-base-uncased-vocab.txt").read_bytes()
    (directory / "english/vocab.txt").write_bytes(vocabulary)
    return {path.name: path for path in directory.iterdir()}


@pytest.mark.parametrize("name", CASES)
def test_recipe_on_real_data(name: str, shared_data: Path, vocabularies: dict[str, Path], tmp_path: Path) -> None:
    case = CASES[name]
    (tmp_path / "data").mkdir()
    for official, path in case.files.items():
        (tmp_path / "data" / official).symlink_to(shared_data / path)
    module, _, choices = case.recipe.partition(":")
    config = importlib.import_module(f"configs.{module}").get_config(choices)
    config.update_from_flattened_dict(case.fields)
    values: dict[str, Any] = config.to_dict()
    layers = 4 if module == "features" else 1  # the last four are taken
    values["model"] |= TINY | {"max_position_embeddings": 512, "num_hidden_layers": layers}
    values |= {"tokenizer": str(vocabularies[case.vocabulary]), "data_dir": str(tmp_path / "data")}
    values |= {"train_epochs": None, "train_steps": 4, "mesh": {"data": 1}}
    if module == "features":
        values = from_an_encoder(values, tmp_path)
    result = bert_jax.train(values, tmp_path / "run")
    assert case.figure in result and all(math.isfinite(figure) for figure in result.values()), result
    output = tmp_path / "predictions"
    assert predict_workdir(tmp_path / "run", shared_data / list(case.files.values())[-1], output) > 60
    assert any(path.stat().st_size for path in (output.iterdir() if output.is_dir() else [output]))


def from_an_encoder(config: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Features need an encoder to be of: here that of a run with the same data."""
    tagging = importlib.import_module("configs.ner").get_config("data=wnut17").to_dict()
    tagging |= {
        name: config[name] for name in ("tokenizer", "data_dir", "train_epochs", "train_steps", "mesh", "model")
    }
    bert_jax.train(tagging, directory / "encoder")
    taken = {name: value for name, value in config.items() if name != "tokenizer"}
    taken["model"] = {name: value for name, value in taken["model"].items() if name not in TINY}
    return taken | {"init_from": str(directory / "encoder"), "features_dir": str(directory / "features")}
