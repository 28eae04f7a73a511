"""Text and tasks of the small tables: whole, readable, without an article on both sides."""

import json
import re
from pathlib import Path

import pytest

from bert_jax.data.choices import read_hellaswag
from bert_jax.data.columns import FORMATS, read_columns
from bert_jax.data.glue import read_glue
from bert_jax.data.squad import read_questions
from bert_jax.data.text_files import Problems
from experiments.small_data import QUESTIONS, TASKS, main, pieces


def test_every_task_is_read_by_its_own_reader(shared_data: Path, tmp_path: Path) -> None:
    output = tmp_path / "small"
    main(["--data", str(shared_data), "--output", str(output)])
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    texts = [json.loads(line)["text"] for line in (output / "text.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(texts) > 500 and sum(len(text.split()) for text in texts) > 1_900_000
    sizes = {case: (size.train, size.dev) for _, case, size in TASKS}
    for task in ("sts-b", "qnli"):
        rows = [read_glue(task, output / "glue", split, Problems()) for split in ("train", "dev")]
        assert tuple(map(len, rows)) == sizes[task]
    train, dev = (read_hellaswag(output / "hellaswag" / f"hellaswag_{s}.jsonl", Problems()) for s in ("train", "val"))
    assert (len(train), len(dev)) == sizes["hellaswag"]
    sentences = read_columns(output / "wnut17" / "wnut17train.conll", FORMATS["wnut17"])
    assert len(sentences) == sizes["wnut17"][0]
    for folder, _, version, size in QUESTIONS:
        train, dev = (read_questions(output / folder / f"{s}-v{version}.json", Problems()) for s in ("train", "dev"))
        assert len(train) >= (size.train or 0) and len(dev) >= (size.dev or 0)
        assert not {question.title for question in train} & {question.title for question in dev}
        assert any(question.is_impossible for question in dev) == (version == "2.0")
    with pytest.raises(SystemExit, match="small exists; give another --output or delete it"):
        main(["--data", str(shared_data), "--output", str(output)])


def test_a_book_in_pieces_of_whole_lines() -> None:
    lines = [f"{number:04} {'x' * 994}\n" for number in range(40)]  # 1,000 characters each
    found = pieces("".join(lines))
    assert [len(piece) for piece in found] == [15_000, 15_000, 10_000] and "".join(found) == "".join(lines)


def test_what_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--data", str(tmp_path / "none"), "--output", str(tmp_path / "small")])
    assert re.match(r"error: .*none", str(error.value))
    assert not (tmp_path / "small").exists()
