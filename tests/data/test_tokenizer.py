"""Loading and saving of tokenizers, the case guard, and warnings about a corpus."""

import json
from pathlib import Path

import pytest

from bert_jax.data.tokenizer import load_tokenizer, unknown_warning
from bert_jax.data.wordpiece import WordPiece

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
LETTERS = [f"{a}{b}{c}" for a in "abcdefghijkl" for b in "abcdefghij" for c in "abcdefghij"]


def write_vocabulary(directory: Path, pieces: list[str]) -> Path:
    file = directory / "vocab.txt"
    file.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return file


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("rules", ["original", "huggingface"])
def test_directory_rebuilds_the_tokenizer(tmp_path: Path, lowercase: bool, rules: str) -> None:
    tokenizer = WordPiece(PIECES, lowercase=lowercase, rules=rules, split_cjk=False)
    tokenizer.save(tmp_path / "t")
    again = load_tokenizer(tmp_path / "t")
    assert isinstance(again, WordPiece)
    assert (again.pieces, again.lowercase, again.rules, again.split_cjk) == (PIECES, lowercase, rules, False)
    assert again.fingerprint() == tokenizer.fingerprint()
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["tokenizer_config.json", "vocab.txt"]
    tokenizer.save(tmp_path / "t")  # over itself


def test_fingerprint_tells_options_and_pieces_apart() -> None:
    tokenizers = [
        WordPiece(PIECES, lowercase=True),
        WordPiece(PIECES, lowercase=False),
        WordPiece(PIECES, lowercase=True, rules="huggingface"),
        WordPiece([*PIECES, "x"], lowercase=True),
    ]
    assert len({tokenizer.fingerprint() for tokenizer in tokenizers}) == 4


def test_hugging_face_directories(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, PIECES)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}')
    assert not load_tokenizer(tmp_path).lowercase
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(PIECES)}}
    normalizer = {"type": "BertNormalizer", "lowercase": True, "strip_accents": False, "handle_chinese_chars": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "normalizer": normalizer}))
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, WordPiece)
    assert tokenizer.pieces == PIECES and tokenizer.lowercase and not tokenizer.strip_accents
    # Beside a vocab.txt it still says how text is normalised, unless the configuration does.
    write_vocabulary(tmp_path, [*PIECES, "The", "Cat"])
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, WordPiece)
    assert tokenizer.vocab_size == len(PIECES) + 2 and tokenizer.lowercase and not tokenizer.strip_accents
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not load_tokenizer(tmp_path).lowercase


@pytest.mark.parametrize("content", ["[]", '"x"', '{"format_version": "1"}', '{"format_version": null}'])
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    write_vocabulary(tmp_path, PIECES)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is no tokenizer configuration: write"):
        load_tokenizer(tmp_path)


def test_case_is_inferred(tmp_path: Path) -> None:
    assert load_tokenizer(write_vocabulary(tmp_path, PIECES)).lowercase
    assert not load_tokenizer(write_vocabulary(tmp_path, [*PIECES, "The"])).lowercase


def test_contradicting_case_is_refused(tmp_path: Path) -> None:
    file = write_vocabulary(tmp_path, PIECES + LETTERS)
    with pytest.raises(ValueError, match=r"lowercase=False contradicts .* use lowercase=True"):
        load_tokenizer(file, lowercase=False)
    assert not load_tokenizer(file, lowercase=False, check_case=False).lowercase
    file = write_vocabulary(tmp_path, PIECES + LETTERS + [piece.title() for piece in LETTERS])
    with pytest.raises(ValueError, match=r"lowercase=True contradicts .* use lowercase=False"):
        load_tokenizer(file, lowercase=True)


def test_released_vocabularies(shared_data: Path) -> None:
    uncased = load_tokenizer(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    assert (uncased.vocab_size, uncased.lowercase) == (30522, True)
    assert (uncased.pad_id, uncased.unk_id, uncased.cls_id, uncased.sep_id, uncased.mask_id) == (0, 100, 101, 102, 103)
    assert uncased.special_ids == (0, 100, 101, 102, 103)
    chinese = load_tokenizer(shared_data / "vocab" / "bert-base-chinese-vocab.txt")
    assert (chinese.vocab_size, chinese.lowercase) == (21128, True)
    assert chinese.encode("你好, BERT").tokens == ["你", "好", ",", "be", "##rt"]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no tokenizer at .*nowhere: give"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has no vocab.txt"):
        load_tokenizer(tmp_path)
    write_vocabulary(tmp_path, PIECES)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"is not JSON"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"format_version": 99}')
    with pytest.raises(ValueError, match=r"format_version 99.* reads 1"):
        load_tokenizer(tmp_path)
    write_vocabulary(tmp_path, ["a", "##b"])
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"has no \[UNK\]"):
        load_tokenizer(tmp_path)


def test_unknown_warning() -> None:
    assert unknown_warning(0, 0) is None
    assert unknown_warning(30, 100) is None
    assert "31% of 100 tokens are [UNK] (limit 30%)" in str(unknown_warning(31, 100))
