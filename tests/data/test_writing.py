"""Files appear whole or not at all; what is no regular file is written as it is."""

import os
from pathlib import Path

import pytest

from bert_jax.data.writing import check_output, written


def test_takes_its_place_at_the_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.tsv"
    with written(path) as temporary:
        temporary.write_text("first")
        assert not path.exists() and temporary.parent == path.parent
    assert path.read_text() == "first" and os.listdir(path.parent) == ["out.tsv"]
    link = tmp_path / "link.tsv"
    link.symlink_to(path)
    with written(link) as temporary:
        temporary.write_text("second")
    assert link.is_symlink() and path.read_text() == "second"


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    path.write_text("before")
    with pytest.raises(RuntimeError), written(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["out.tsv"]


def test_a_device_is_written_as_it_is() -> None:
    with written(Path("/dev/null")) as temporary:
        assert temporary == Path("/dev/null")


def test_a_folder_for_a_file_and_the_other_way_round(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, but the output is one file; give its name"), written(tmp_path):
        pass
    check_output(tmp_path, folder=True)
    check_output(tmp_path / "new", folder=True)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is a file, but the output is several; give a folder"):
        check_output(tmp_path / "file", folder=True)
