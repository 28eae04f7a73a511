"""Corpora at URLs: fetched once into the local cache, checked, and memory-mapped from there; built here and pushed."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bert_jax.data.corpus import SPLITS, parse_info
from bert_jax.data.object_cache import Copy, local_output
from bert_jax.data.object_store import Store, is_url

INFO = "corpus.json"


def local_corpus(path: str | Path) -> Path:
    """A path as it is; of a URL the local copy of the finished corpus there, whose arrays were checked when fetched.

    The copy is kept by the corpus's content: one built anew at the same URL gets a new copy, and who has mapped the
    old one keeps it.

    Raises:
        FileNotFoundError: no finished corpus is there.
        ValueError: a file that is not what its ``corpus.json`` says.
    """
    if not is_url(path):
        return Path(path)
    url, info = str(path), stored_info(str(path))
    copy = Copy(url, info["content_sha256"])
    sums = {
        f"{split}/{name}.bin": digest
        for split, counts in info["splits"].items()
        for name, digest in counts["file_sha256"].items()
    }

    def check(name: str, file: Path) -> None:
        with file.open("rb") as opened:
            if name in sums and hashlib.file_digest(opened, "sha256").hexdigest() != sums[name]:
                raise ValueError(f"{url}/{name} is not what its {INFO} says (SHA-256); copy or build the corpus again")

    with copy.fetching():
        there = copy.store.files()
        if missing := sorted(sums.keys() - there.keys()):
            raise ValueError(f"{url}/{missing[0]} is missing; copy or build the corpus again")
        wanted = {name: there[name] for name in there if name in sums or name.startswith("tokenizer/")}
        copy.drop((copy.index() or {}).keys() - {*wanted, INFO})
        copy.fetch(wanted, check)
        copy.fetch({INFO: there[INFO]})  # last: with it, the copy is a corpus
    return copy.directory


def known_copy(path: str | Path) -> Path:
    """As ``local_corpus``, but nothing is fetched: no corpus is there where this machine has not used it."""
    return Copy(str(path), stored_info(str(path))["content_sha256"]).directory if is_url(path) else Path(path)


def stored_info(url: str) -> dict[str, Any]:
    """The contents of the ``corpus.json`` at a URL. FileNotFoundError where no finished corpus is."""
    content = Store(url).read(INFO)
    if content is None:
        raise FileNotFoundError(f"{url} is not a finished corpus (no {INFO}); build one with experiments.build_corpus")
    return parse_info(content, f"{url}/{INFO}")


def check_place(url: str, overwrite: bool) -> None:
    """ValueError where a corpus cannot be written to a URL: another is there, or something that is none."""
    there = Store(url).files()
    if there and INFO not in there:
        raise ValueError(f"{url} exists and is no finished corpus; choose another output or remove it")
    if there and not overwrite:
        raise ValueError(f"{url} is a finished corpus; choose another output or pass --overwrite")


def corpus_output(output: str | Path) -> AbstractContextManager[Path]:
    """Where to build a corpus: there, or for a URL here; pushed when the block ends, ``corpus.json`` last."""
    return local_output(output, INFO, replacing=("tokenizer", *SPLITS))
