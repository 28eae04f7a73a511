"""Byte-level BPE: ids and offsets as transformers', no text unknown, RoBERTa's files, special tokens, pairs."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from bert_jax.data.byte_bpe import ALPHABET, ByteBPE
from bert_jax.data.columns import TaggedSentence
from bert_jax.data.sequences import pair, single
from bert_jax.data.squad import WindowSettings, make_question, make_windows
from bert_jax.data.tagging import tag_windows
from bert_jax.data.text_examples import TextExample, to_sequences, to_windows
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.vocabulary import learn_byte_bpe

TEXTS = [
    "The quick brown fox, number 1,000, jumps over the lazy dog; don't they? They've 25 dogs.",
    "한국어 문장도 있다. 나는 학생이다, 너도 학생이다.",
    "A cat sat on the mat. The cat's mat, the dog's hat.",
] * 20
# White space of every kind, characters of several bytes and of several code points, marks apart, controls.
ODD = [
    "",
    " ",
    "  two  spaces  ",
    "The cat sat.",
    " The cat",
    "don't we'll I'm they've 'tis",
    "sleepy 🥱, flags 🇰🇷 and 👩‍👩‍👧 families",
    "한국어 문장이다, 가각갂 ㅋㅋㅋ",
    "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "cafe\u0301 e\u0301\u0323 \u0301",
    "lines\nand\r\n\ttabs \n\n  x",
    "\u00a0narrow\u202f wide\u3000 line\u2028 next\u0085 x",
    "x\x1cy \x00 \u200b\u00ad z",
    "1,234.5 x² ½ ٣",
    "a" * 300,
]


@pytest.fixture(scope="module")
def learned() -> ByteBPE:
    return learn_byte_bpe(TEXTS, 400)


@pytest.fixture(scope="module")
def plain(learned: ByteBPE) -> ByteBPE:
    """As RoBERTa's own: no space before the first word."""
    return ByteBPE(learned.pieces, learned.merges, add_prefix_space=False)


def random_texts(count: int) -> list[str]:
    source = random.Random(0)
    alphabet = [*"Tx 1,.'é한🥱\u0301\n\t\u3000\x1c\x85²", "The", " cat", "'s", " 문장", "  "]
    return ["".join(source.choices(alphabet, k=source.randrange(14))) for _ in range(count)]


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_ids_and_offsets_are_transformers(learned: ByteBPE, tmp_path: Path, add_prefix_space: bool) -> None:
    transformers = pytest.importorskip("transformers", reason="parity with transformers needs it")
    ours = ByteBPE(learned.pieces, learned.merges, add_prefix_space=add_prefix_space)
    ours.save(tmp_path)
    peer = transformers.RobertaTokenizerFast.from_pretrained(tmp_path)
    texts = ODD + random_texts(400)
    ids, lengths = ours.encode_batch(texts)
    position = 0
    for text, length in zip(texts, lengths.tolist(), strict=True):
        found = peer(text, add_special_tokens=False, return_offsets_mapping=True)
        encoding = ours.encode(text)
        assert encoding.ids == found["input_ids"] == ids[position : position + length].tolist(), ascii(text)
        assert encoding.tokens == peer.convert_ids_to_tokens(found["input_ids"])
        # With a space of its own in front, transformers leaves the text's first space to the first piece.
        if not (add_prefix_space and text.startswith(" ")):
            assert encoding.offsets == found["offset_mapping"], ascii(text)
        position += length
    both = [*peer("The cat", "한국")["input_ids"]]
    assert both == to_sequences([TextExample("The cat", "한국")], ours, 128)[0].ids.tolist()


def test_properties_of_random_text(learned: ByteBPE, plain: ByteBPE) -> None:
    for tokenizer in (learned, plain):
        specials = set(tokenizer.special_ids)
        texts = [*ODD, *random_texts(400), "a\ud800b", "<s> </s> <mask> [MASK] <pad><unk>"]
        for text in texts:
            encoding = tokenizer.encode(text)
            assert encoding.ids == tokenizer.encode_ids(text), ascii(text)
            assert not specials & set(encoding.ids)
            assert tokenizer.decode(encoding.ids) == text.removeprefix(" ").replace("\ud800", "\ufffd"), ascii(text)
            for start, end in encoding.offsets:
                assert 0 <= start <= end <= len(text)
            starts = [start for start, _ in encoding.offsets]
            assert starts == sorted(starts)
            covered = {i for start, end in encoding.offsets for i in range(start, end)}
            assert covered == {i for i, char in enumerate(text) if char != " "}, ascii(text)


def test_a_character_of_several_pieces_has_them_all(learned: ByteBPE) -> None:
    encoding = learned.encode("a 🥱!")
    assert encoding.offsets[-1] == (3, 4)
    assert encoding.offsets.count((2, 3)) == 4  # a piece a byte
    assert learned.readable(encoding.ids[-2]) == learned.pieces[encoding.ids[-2]]  # no character by itself


def test_words_begin_with_a_space(learned: ByteBPE, plain: ByteBPE) -> None:
    assert learned.encode("The cat").tokens[0].startswith("Ġ")
    assert not plain.encode("The cat").tokens[0].startswith("Ġ")
    assert plain.encode_words(["The", " cat"])[0].tolist() == plain.encode_ids(" The cat")
    assert learned.encode_ids("The cat") == plain.encode_ids(" The cat")
    assert plain.continuing_ids("cat") == learned.continuing_ids("cat") == plain.encode_ids("cat")
    starts = learned.word_starts()
    assert starts[list(learned.special_ids)].all()
    assert starts.sum() - 5 == sum(piece[0] in "ĠĊĉč" for piece in learned.pieces[5:])
    assert not starts[learned.continuing_ids("cat")].any()
    assert not learned.decomposes("한국어 が")


def test_special_tokens_when_asked(learned: ByteBPE, plain: ByteBPE) -> None:
    assert [learned.pieces[i] for i in learned.special_ids] == ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    for tokenizer in (learned, plain):
        written = tokenizer.encode("The <mask> sat", special_tokens=True)
        assert written.ids == tokenizer.encode("The [MASK] sat", special_tokens=True).ids
        # The space before the mask is the mask's, the one after it that of the next word.
        expected = [*tokenizer.encode_ids("The"), tokenizer.mask_id, *tokenizer.encode_words(["sat"])[0].tolist()]
        assert written.ids == expected
        assert written.offsets[-1][1] == len("The <mask> sat")
        joined = tokenizer.encode("[MASK]s[MASK].", special_tokens=True)
        mask = tokenizer.mask_id
        assert joined.ids == [mask, *tokenizer.continuing_ids("s"), mask, *tokenizer.continuing_ids(".")]
    assert learned.decode([2, *learned.encode_ids("The cat"), 4, 3]) == "<s> The cat <mask> </s>"
    assert learned.readable(learned.mask_id) == "<mask>"


def test_directory_and_pickle(learned: ByteBPE, plain: ByteBPE, tmp_path: Path) -> None:
    for tokenizer in (learned, plain):
        tokenizer.save(tmp_path)
        for again in (load_tokenizer(tmp_path), load_tokenizer(str(tmp_path)), pickle.loads(pickle.dumps(tokenizer))):
            assert isinstance(again, ByteBPE) and again.add_prefix_space == tokenizer.add_prefix_space
            assert again.fingerprint() == tokenizer.fingerprint() and again.pieces == tokenizer.pieces
            assert again.encode_ids("The 한국 cat") == tokenizer.encode_ids("The 한국 cat")
    assert learned.fingerprint() != plain.fingerprint()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merges.txt", "tokenizer_config.json", "vocab.json"]
    (tmp_path / "tokenizer_config.json").unlink()
    assert not load_tokenizer(tmp_path / "vocab.json").encode("cat").tokens[0].startswith("Ġ")  # as RoBERTa's


def library_json(tokenizer: ByteBPE, **steps: Any) -> dict[str, Any]:
    """A `tokenizer.json` of the library's own writing, the mask known to it as an added token only."""
    vocabulary = {piece: i for i, piece in enumerate(tokenizer.pieces) if piece != "<mask>"}
    library = tokenizers.Tokenizer(models.BPE(vocabulary, tokenizer.merges))
    library.pre_tokenizer = steps.get("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False))
    library.post_processor = processors.RobertaProcessing(("</s>", 3), ("<s>", 2))
    if "normalizer" in steps:
        library.normalizer = steps["normalizer"]
    content: dict[str, Any] = json.loads(library.to_str())
    content["added_tokens"] = [{"id": 4, "content": "<mask>", "special": True}]
    return content


def test_a_tokenizer_json(learned: ByteBPE, plain: ByteBPE, tmp_path: Path) -> None:
    content = library_json(learned)
    for merges in (content["model"]["merges"], [" ".join(merge) for merge in content["model"]["merges"]]):
        content["model"]["merges"] = merges
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        found = load_tokenizer(tmp_path)
        assert found.fingerprint() == plain.fingerprint()
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    assert load_tokenizer(tmp_path).fingerprint() == learned.fingerprint()
    # transformers reads it before the other two files, and so do we.
    (tmp_path / "vocab.json").write_text("{}")
    assert load_tokenizer(tmp_path).fingerprint() == learned.fingerprint()


@pytest.mark.parametrize(
    ("steps", "model", "message"),
    [
        ({"normalizer": normalizers.NFC()}, {}, "normalizer NFC"),
        ({"pre_tokenizer": pre_tokenizers.Whitespace()}, {}, "pre_tokenizer Whitespace"),
        ({"pre_tokenizer": pre_tokenizers.ByteLevel(use_regex=False)}, {}, "use_regex=False"),
        ({}, {"end_of_word_suffix": "</w>"}, "end_of_word_suffix='</w>'"),
    ],
)
def test_other_rules_are_refused(
    learned: ByteBPE, tmp_path: Path, steps: dict[str, Any], model: dict[str, Any], message: str
) -> None:
    content = library_json(learned, **steps)
    content["model"] |= model
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"tokenizer\.json is no BPE by RoBERTa's rules \({message}.*\): take"):
        load_tokenizer(tmp_path)


def test_errors_name_the_remedy(learned: ByteBPE, tmp_path: Path) -> None:
    learned.save(tmp_path)
    with pytest.raises(ValueError, match=r"vocab\.json is a byte-level BPE, which has case: leave lowercase out"):
        load_tokenizer(tmp_path, lowercase=True)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ t h\n")
    with pytest.raises(ValueError, match=r"merges\.txt: the merge 'Ġ t h' is not two pieces"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("Ġ zzz\n")
    with pytest.raises(ValueError, match=r"vocab\.json: the vocabulary lacks 1 pieces .*'Ġzzz' first: give the vocab"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"merges\.txt is missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": "b"}')
    (tmp_path / "merges.txt").touch()
    with pytest.raises(ValueError, match=r"vocab\.json does not map pieces to numbers"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text("[")
    with pytest.raises(ValueError, match=r"vocab\.json is not JSON"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({char: i for i, char in enumerate(ALPHABET)}))  # GPT-2's
    with pytest.raises(
        ValueError, match=r"there is no piece for \[PAD\] \(looked for \[PAD\], <pad>\): add it, or use"
    ):
        load_tokenizer(tmp_path)


def test_two_separators_in_a_pair(learned: ByteBPE) -> None:
    a, b = learned.encode_ids("The cat sat on the mat."), learned.encode_ids("한국어")
    joined = pair(a, b, learned)
    assert joined.ids.tolist() == [2, *a, 3, 3, *b, 3]
    assert joined.segment_ids.tolist() == [0] * (len(a) + 3) + [1] * (len(b) + 1)
    (found,) = to_sequences([TextExample("The cat sat on the mat.", "한국어")], learned, 64)
    assert (found.ids.tolist(), found.segment_ids.tolist()) == (joined.ids.tolist(), joined.segment_ids.tolist())
    length = len(joined.ids)
    (cut,) = to_sequences([TextExample("The cat sat on the mat.", "한국어")], learned, length - 1)
    assert len(cut.ids) == length - 1
    assert single(a, learned).ids.tolist() == [2, *a, 3]
    windows, owners = to_windows([TextExample("The cat sat on the mat. " * 4, "한국어")], learned, length, 4)
    assert owners.tolist() == [0] * len(windows) and max(len(window.ids) for window in windows) == length
    assert all(window.ids.tolist()[-len(b) - 3 :] == [3, 3, *b, 3] for window in windows)
    with pytest.raises(ValueError, match=r"max_seq_length=5 has no room .*: give 6 or more"):
        to_sequences([TextExample("a", "b")], learned, 5)


def test_questions_have_two_separators(learned: ByteBPE) -> None:
    context = "The dog sat. 한국어 문장도 있다, 그리고 the mat."
    question = make_question("1", "The cat?", context, [("문장도", context.index("문장도"))])
    settings = WindowSettings(max_seq_length=24, doc_stride=5, max_query_length=8)
    windows = make_windows([question], learned, settings)
    query = learned.encode_ids("The cat?")
    holding = [window for window in windows if window.start_column > 0]
    assert len(windows) > 1 and holding
    for window in windows:
        assert len(window.sequence.ids) <= 24
        assert window.sequence.ids.tolist()[: window.first_column] == [2, *query, 3, 3]
        assert len(window.offsets) == len(window.sequence.ids) - window.first_column - 1
    for window in holding:
        start = window.offsets[window.start_column - window.first_column, 0]
        end = window.offsets[window.end_column - window.first_column, 1]
        assert context[start:end] == "문장도"


def test_tagged_words_and_characters(plain: ByteBPE) -> None:
    """Words as after a space, and characters that no space parts as going on with the one before."""
    words = TaggedSentence(("The", "cat"), ("O", "O"))
    ids = tag_windows([words], plain, ("O",)).windows[0].sequence.ids.tolist()
    assert ids == [2, *plain.encode_ids(" The cat"), 3]
    letters = TaggedSentence(tuple("한국어문장"), ("O",) * 5, spaces=(True, False, False, True, False))
    for join_words in (False, True):
        data = tag_windows([letters], plain, ("O",), join_words=join_words)
        ids = data.windows[0].sequence.ids.tolist()
        assert plain.decode(ids[1:-1]) == "한국어 문장"
        assert data.counts.without_pieces == 0 and len(data.windows[0].words) >= 1
