"""Learning vocabularies: the same on every run, specials first, alphabet and counts by hand, bounded memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data import vocabulary
from bert_jax.data.byte_bpe import ALPHABET
from bert_jax.data.sentence_piece import SentencePiece
from bert_jax.data.vocabulary import count_words, learn_byte_bpe, learn_sentencepiece, learn_wordpiece, unknown_share

ROOT = Path(__file__).parents[2]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The hug of a pug, hugs and PUGS.", "Bun buns hug! The pun is no bug."] * 30


def test_words_are_counted_as_the_tokenizer_splits() -> None:
    counts = count_words(["Don't don\u200b't", "漢字 Don"], lowercase=True)
    assert counts == {"don": 3, "'": 2, "t": 2, "漢": 1, "字": 1}


def test_rarest_words_go_when_there_are_too_many() -> None:
    texts = [f"often w{i}" for i in range(500)]
    counts = count_words(texts, lowercase=True, max_words=60)
    assert len(counts) <= 60
    assert counts["often"] == 500


def test_wordpiece_begins_with_specials_and_alphabet() -> None:
    tokenizer = learn_wordpiece(TEXTS, 60, lowercase=True)
    assert tokenizer.pieces[:5] == SPECIALS
    assert tokenizer.vocab_size <= 60 and len(set(tokenizer.pieces)) == tokenizer.vocab_size
    letters = sorted(set("".join(TEXTS).lower()) - {" "})
    assert tokenizer.pieces[5 : 5 + len(letters)] == letters
    assert tokenizer.encode("hug the pug").tokens == ["hug", "the", "pug"]
    assert unknown_share(tokenizer, TEXTS) == 0


def test_first_merge_by_hand() -> None:
    # Letters a b c and ##b ##c; the pair (a, ##b) occurs 5 times, (##b, ##c) 3 times.
    tokenizer = learn_wordpiece(["ab ab abc abc abc"], 5 + 5 + 1 - 1, lowercase=True)
    assert tokenizer.pieces[5:] == ["a", "b", "c", "##b", "##c"]
    assert learn_wordpiece(["ab ab abc abc abc"], 11, lowercase=True).pieces[10:] == ["ab"]
    assert learn_wordpiece(["ab ab abc abc abc"], 12, lowercase=True).pieces[10:] == ["ab", "abc"]


def test_limited_alphabet_makes_rare_characters_unknown() -> None:
    tokenizer = learn_wordpiece([*TEXTS, "zyx"], 60, lowercase=True, limit_alphabet=15)
    assert sum(len(piece) == 1 for piece in tokenizer.pieces) == 15
    assert tokenizer.encode("zyx").tokens == ["[UNK]"]
    assert unknown_share(tokenizer, ["hug zyx"]) == 0.5


def test_large_counts_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = learn_wordpiece(TEXTS, 50, lowercase=True).pieces
    monkeypatch.setattr(vocabulary, "MAX_TRAINING_WORDS", 10 * len(TEXTS) // 2)  # half of the words
    assert learn_wordpiece(TEXTS, 50, lowercase=True).pieces == expected


@pytest.mark.parametrize("learn", ["learn_wordpiece(t, 120, lowercase=False)", "learn_byte_bpe(t, 330)"])
def test_the_same_in_every_process(learn: str) -> None:
    program = (
        "from bert_jax.data.vocabulary import *; t = [' '.join(f'{a}{b}{c}' for a in 'abcdé' for b in 'xyzw' "
        f"for c in 'klmn')] * 3; print({learn}.fingerprint())"
    )
    runs = [subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True) for _ in range(3)]
    assert runs[0].returncode == 0, runs[0].stderr
    assert len({run.stdout for run in runs}) == 1


def test_sentencepiece() -> None:
    tokenizer = learn_sentencepiece(TEXTS, 60)
    assert isinstance(tokenizer, SentencePiece)
    assert tokenizer.pieces[:5] == SPECIALS
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert tokenizer.vocab_size <= 60
    assert learn_sentencepiece(TEXTS, 60).fingerprint() == tokenizer.fingerprint()
    assert (
        learn_sentencepiece(TEXTS, 60, lowercase=True).encode("HUG").ids
        == learn_sentencepiece(TEXTS, 60, lowercase=True).encode("hug").ids
    )


def test_byte_bpe_begins_with_specials_and_bytes() -> None:
    # Words "Ġab" four times, "Ġabc" twice. The pair (a, b) occurs six times, so does (Ġ, a), with a later letter.
    texts = ["ab ab abc", " ab\tab\nabc"]
    assert learn_byte_bpe(texts, 261).pieces == ["<pad>", "<unk>", "<s>", "</s>", "<mask>", *ALPHABET]
    assert learn_byte_bpe(texts, 263).pieces[261:] == ["ab", "Ġab"]
    tokenizer = learn_byte_bpe(texts, 1000)
    assert tokenizer.pieces[261:] == ["ab", "Ġab", "Ġabc"]
    assert tokenizer.merges == [("a", "b"), ("Ġ", "ab"), ("Ġab", "c")]
    assert tokenizer.encode("abc ab").tokens == ["Ġabc", "Ġab"]
    assert learn_byte_bpe(["ab ab abc"], 1000).pieces[261:] == ["ab", "Ġab"]  # once is too rare
    assert unknown_share(tokenizer, [*TEXTS, "ಠ_ಠ"]) == 0


def test_sentencepiece_keeps_long_lines() -> None:
    line = " ".join(TEXTS)
    long = line * 40
    assert len(long) > 65_536
    pieces = learn_sentencepiece([long], 60).pieces
    assert "".join(sorted(set("".join(pieces)) & set("hugpbn"))) == "bghnpu"
    cut = list(vocabulary._sentences([long], False))
    assert "".join(cut).replace(" ", "") == long.replace(" ", "")


def test_even_sample() -> None:
    numbers = [str(i) for i in range(100)]
    assert vocabulary._even_sample(numbers, 100) == numbers
    assert vocabulary._even_sample(numbers, 30) == numbers[::4]


def test_errors_name_value_and_remedy() -> None:
    with pytest.raises(ValueError, match="0 words"):
        learn_wordpiece([" ", "\u200b"], 100, lowercase=True)
    with pytest.raises(ValueError, match=r"vocab_size=8 is less than the .* use at least"):
        learn_wordpiece(TEXTS, 8, lowercase=True)
    with pytest.raises(ValueError, match=r"vocab_size=260 is less than the 261 special tokens and bytes: use at least"):
        learn_byte_bpe(TEXTS, 260)
    with pytest.raises(ValueError, match="a byte-level BPE has case"):
        learn_byte_bpe(TEXTS, 400, lowercase=True)
    with pytest.raises(ValueError, match="0 words"):
        learn_byte_bpe([" ", "\n"], 400)
    with pytest.raises(ValueError, match="0 sentences"):
        learn_sentencepiece(["", "\n"], 100)
    with pytest.raises(ValueError, match="vocab_size=6 cannot be learned"):
        learn_sentencepiece(TEXTS, 6)
