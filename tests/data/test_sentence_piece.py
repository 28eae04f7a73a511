"""SentencePiece models: ids as the library's, offsets into the text, special tokens, preprocessing."""

import io
import pickle
import random
from pathlib import Path

import pytest
import sentencepiece

from bert_jax.data.sentence_piece import Preprocessing, SentencePiece
from bert_jax.data.tokenizer import load_tokenizer

SENTENCES = [
    "The quick brown fox, number 1,000, jumps over the lazy dog.",
    "A fine day for a walk in the park with 25 dogs and 3 cats.",
    "Cafe and the [brackets] MASK are here; so is e.",
    "한국어 문장도 있다 가나다 셔츠",
] * 20


def train(**options: object) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=120,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def kobert() -> bytes:
    """Named and numbered as KoBERT's: [UNK] 0, [PAD] 1, [CLS] 2, [SEP] 3, [MASK] 4, the last three user-defined."""
    symbols = ["[CLS]", "[SEP]", "[MASK]"]
    return train(unk_id=0, pad_id=1, unk_piece="[UNK]", pad_piece="[PAD]", user_defined_symbols=symbols)


@pytest.fixture(scope="module")
def albert() -> bytes:
    """Named as ALBERT's: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4."""
    return train(pad_id=0, unk_id=1, control_symbols=["[CLS]", "[SEP]", "[MASK]"])


def test_special_ids(kobert: bytes, albert: bytes) -> None:
    tokenizer = SentencePiece(kobert)
    ids = (tokenizer.unk_id, tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert ids == (0, 1, 2, 3, 4) == tokenizer.special_ids
    tokenizer = SentencePiece(albert)
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert ids == (0, 1, 2, 3, 4)
    assert tokenizer.pieces[:2] == ["<pad>", "<unk>"]


@pytest.mark.parametrize("text", ["[MASK] it", "a[MASK]b", "［MASK］", "[CLS][SEP]", "<pad> [PAD] <unk>", "▁[MASK]"])
def test_no_text_gives_special_ids(kobert: bytes, albert: bytes, text: str) -> None:
    for model in (kobert, albert):
        tokenizer = SentencePiece(model)
        forbidden = set(tokenizer.special_ids) - {tokenizer.unk_id}
        assert not forbidden & set(tokenizer.encode(text).ids)
        assert not forbidden & set(tokenizer.encode_ids(text))


def test_special_tokens_when_asked(kobert: bytes, albert: bytes) -> None:
    for model in (kobert, albert):
        tokenizer = SentencePiece(model)
        encoding = tokenizer.encode("The [MASK]. [MASK]s [mask]", special_tokens=True)
        assert encoding.ids.count(tokenizer.mask_id) == 2
        # What follows without a space begins no word.
        after = encoding.tokens.index("[MASK]") + 1
        assert encoding.tokens[after] == "."
        assert tokenizer.encode("[MASK] The", special_tokens=True).ids[1:] == tokenizer.encode_ids("The")
    assert SentencePiece(albert).encode("a<pad>", special_tokens=True).ids[-1] == 0
    assert SentencePiece(albert).encode("a[PAD]", special_tokens=True).ids[-1] == 0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ﬁne", "ﬁne"),
        ("  The   fox ", "The fox"),
        ("Ｔhe\u3000①", "Ｔhe ①"),
        ("가 셔", "가 셔"),
        ("가", "가"),
    ],
)
def test_offsets_cover_the_text(kobert: bytes, text: str, parts: str) -> None:
    encoding = SentencePiece(kobert).encode(text)
    covered = {i for start, end in encoding.offsets for i in range(start, end)}
    assert covered == {i for i, char in enumerate(text) if not char.isspace()}
    assert parts.split() == text.split()


def test_each_piece_of_a_ligature_has_it(kobert: bytes) -> None:
    tokenizer = SentencePiece(kobert)
    encoding = tokenizer.encode("xﬁx")
    spans = [span for token, span in zip(encoding.tokens, encoding.offsets, strict=True) if set(token) & set("fi")]
    assert spans and all(start <= 1 < end for start, end in spans)


def test_lone_space_piece_is_empty_and_begins_the_word(kobert: bytes) -> None:
    tokenizer = SentencePiece(kobert)
    encoding = tokenizer.encode("a ㄱ")  # unknown: its word is ▁ and [UNK]
    assert encoding.tokens[-2] == "▁" and encoding.ids[-1] == tokenizer.unk_id
    assert encoding.offsets[-2:] == [(2, 2), (2, 3)]
    starts = tokenizer.word_starts()
    assert starts[encoding.ids[-2]]
    assert starts[list(tokenizer.special_ids)].all()
    assert starts.tolist() == [p.startswith("▁") or i in tokenizer.special_ids for i, p in enumerate(tokenizer.pieces)]


OPTIONS = [
    Preprocessing(),
    Preprocessing(remove_space=False),
    Preprocessing(convert_quotes=True, split_digit_comma=True),  # KoBERT
    Preprocessing(lowercase=True, keep_accents=False, convert_quotes=True, split_digit_comma=True),  # ALBERT
]


@pytest.mark.parametrize("options", OPTIONS)
def test_properties_of_random_text(kobert: bytes, options: Preprocessing) -> None:
    tokenizer = SentencePiece(kobert, options)
    source = random.Random(0)
    alphabet = [*"The fox 12,,.'`한가셔ㅋ▁ΣİÉ\u0301\u200b\n\t\u3000\x0b\x85ﬁ①¨\ud800", "[MASK]", " dog", "the "]
    texts = ["".join(source.choices(alphabet, k=source.randrange(16))) for _ in range(400)]
    ids, lengths = tokenizer.encode_batch(texts)
    position = 0
    for text, length in zip(texts, lengths.tolist(), strict=True):
        encoding = tokenizer.encode(text)
        assert encoding.ids == tokenizer.encode_ids(text) == ids[position : position + length].tolist(), ascii(text)
        position += length
        for start, end in encoding.offsets:
            assert 0 <= start <= end <= len(text), ascii(text)
        for (start, end), (next_start, next_end) in zip(encoding.offsets, encoding.offsets[1:], strict=False):
            assert start <= next_start and end <= next_end, ascii(text)


@pytest.mark.parametrize("file", ["corpora/gutenberg/carroll-alice.txt", "korean/korsts"])
def test_same_ids_as_the_library(kobert: bytes, shared_data: Path, file: str) -> None:
    path = shared_data / file
    path = next(p for p in sorted(path.iterdir()) if "dev" in p.name) if path.is_dir() else path
    lines = path.read_text(encoding="utf-8").split("\n")[:1500]
    library = sentencepiece.SentencePieceProcessor(model_proto=kobert)
    ids, lengths = SentencePiece(kobert).encode_batch(lines)
    expected = library.encode(lines)
    assert lengths.tolist() == list(map(len, expected))
    assert ids.tolist() == [i for line in expected for i in line]


def test_pieces_over_spaces() -> None:
    model = train(
        pad_id=0,
        unk_id=1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        split_by_whitespace=False,
        max_sentencepiece_length=12,
    )
    tokenizer = SentencePiece(model)
    assert any("▁" in piece[1:] for piece in tokenizer.pieces)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in SENTENCES[:4]:
        assert tokenizer.encode_ids(text) == library.encode(text) == tokenizer.encode(text).ids


def test_digit_and_comma(kobert: bytes) -> None:
    plain, split = SentencePiece(kobert), SentencePiece(kobert, Preprocessing(split_digit_comma=True))
    assert "".join(split.encode("1,000, 25,").tokens).replace("▁", "") == "1,000,25,"
    parts = list(split._split_comma(7, "▁9,", 4, 6))
    assert [part for _, part, _ in parts][-1] == "," and parts[-1][2] == (5, 6)
    assert list(plain._split_comma(7, "▁9,", 4, 6)) == [(7, "▁9,", (4, 6))]
    assert list(split._split_comma(7, "▁a,", 4, 6)) == [(7, "▁a,", (4, 6))]


def test_preprocessing(albert: bytes) -> None:
    tokenizer = SentencePiece(albert, Preprocessing(lowercase=True, keep_accents=False, convert_quotes=True))
    assert tokenizer._prepare_text("  Café ``x''\t y ") == 'cafe "x" y'
    encoding = tokenizer.encode("THE Café")
    assert encoding.ids == tokenizer.encode_ids("the cafe")
    assert encoding.offsets[-1][1] == 8


def test_directory_and_pickle(kobert: bytes, tmp_path: Path) -> None:
    tokenizer = SentencePiece(kobert, OPTIONS[3])
    tokenizer.save(tmp_path)
    for again in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert isinstance(again, SentencePiece)
        assert again.preprocessing == OPTIONS[3] and again.lowercase
        assert again.fingerprint() == tokenizer.fingerprint()
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "KoBERTTokenizer"}')
    again = load_tokenizer(tmp_path)
    assert isinstance(again, SentencePiece) and again.preprocessing == OPTIONS[2]
    assert load_tokenizer(tmp_path / "spiece.model").encode("The fox").tokens


def test_a_list_of_its_pieces_beside_it_is_no_wordpiece_vocabulary(kobert: bytes, tmp_path: Path) -> None:
    """As in KoBERT's directory."""
    (tmp_path / "tokenizer_78b3253a26.model").write_bytes(kobert)
    pieces = SentencePiece(kobert).pieces
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    found = load_tokenizer(tmp_path)
    assert found.kind == "sentencepiece" and found.pieces == pieces
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in ["[UNK]", "a", "##b"]))
    assert load_tokenizer(tmp_path).kind == "wordpiece"


def test_decode(kobert: bytes) -> None:
    tokenizer = SentencePiece(kobert)
    assert tokenizer.decode([2, *tokenizer.encode_ids("The lazy dog."), 3]) == "[CLS] The lazy dog. [SEP]"


def test_errors_name_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "m.model").write_bytes(train(pad_id=0, unk_id=1, control_symbols=["[CLS]", "[SEP]"]))
    with pytest.raises(ValueError, match=r"m\.model: there is no piece for \[MASK\].*learn_sentencepiece"):
        load_tokenizer(tmp_path / "m.model")
    (tmp_path / "m.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="is not a SentencePiece model: give"):
        load_tokenizer(tmp_path / "m.model")
