"""Options of a config against a function, and the files of a split."""

from pathlib import Path

import pytest

from bert_jax.data.sources import check_options, split_paths
from bert_jax.data.text_data import open_text_data


def test_options_are_named_before_the_call() -> None:
    def read(folder: str, *, name: str, other: int = 0) -> None: ...

    check_options(read, "data", "x", name="y")
    with pytest.raises(ValueError, match=r"^config\.data: missing a required argument: 'name'$"):
        check_options(read, "data", "x")
    with pytest.raises(ValueError, match=r"^config\.data: got an unexpected keyword argument 'nmae'$"):
        check_options(read, "data", "x", nmae="y", name="y")


def test_an_error_of_the_reader_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("of the reader")

    monkeypatch.setattr("bert_jax.data.text_data.read_table", broken)
    with pytest.raises(TypeError, match="of the reader"):
        open_text_data("table", data_dir=str(tmp_path), labels=None, text_a="a")


def test_files_of_a_split() -> None:
    files = {"train": ("a", "b"), "dev": "", "test": ""}
    assert split_paths(files, "train", "data") == [Path("data/a"), Path("data/b")]
    assert split_paths(files, "dev", "data") == []
    assert split_paths({"dev": "/elsewhere/c"}, "dev", "data") == [Path("/elsewhere/c")]
    with pytest.raises(ValueError, match="test is not set: give its file, relative to data_dir"):
        split_paths(files, "test", "data")
    with pytest.raises(ValueError, match="there is no split 'val'; choose from train, dev, test"):
        split_paths(files, "val", "data")
