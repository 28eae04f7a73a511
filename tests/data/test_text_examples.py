"""Labels to numbers, texts to sequences; the whole batch at once equals the rules applied one by one."""

import numpy as np
import pytest

from bert_jax.data.sequences import pair, single, truncate_pair
from bert_jax.data.text_examples import (
    IN_WINDOWS,
    TRUNCATED,
    TextExample,
    find_labels,
    label_ids,
    label_scores,
    to_sequences,
    to_windows,
)
from bert_jax.data.text_files import Problems
from bert_jax.data.wordpiece import WordPiece

WORDS = [chr(97 + i) for i in range(26)]
TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)


def text(rng, most):
    return " ".join(rng.choice(WORDS, rng.integers(0, most + 1)))


def by_the_rules(example, max_seq_length):
    a = TOKENIZER.encode_ids(example.text_a)
    if example.text_b is None:
        return single(a[: max_seq_length - 2], TOKENIZER)
    return pair(*truncate_pair(a, TOKENIZER.encode_ids(example.text_b), max_seq_length - 3), TOKENIZER)


@pytest.mark.parametrize("max_seq_length", [5, 6, 13, 50])
def test_a_batch_equals_one_by_one(max_seq_length):
    rng = np.random.default_rng(0)
    examples = [TextExample(text(rng, 20), None if i % 3 == 0 else text(rng, 20)) for i in range(300)]
    problems = Problems()
    sequences = to_sequences(examples, TOKENIZER, max_seq_length, problems)
    cut = 0
    for example, sequence in zip(examples, sequences, strict=True):
        expected = by_the_rules(example, max_seq_length)
        assert sequence.ids.tolist() == expected.ids.tolist()
        assert sequence.segment_ids.tolist() == expected.segment_ids.tolist()
        assert sequence.ids.dtype == sequence.segment_ids.dtype == np.int32
        cut += len(sequence.ids) < len(by_the_rules(example, 1000).ids)
    assert problems.counts.get(TRUNCATED, 0) == cut


def test_a_pair_by_hand():
    (sequence,) = to_sequences([TextExample("a b", "c")], TOKENIZER, 128)
    assert sequence.ids.tolist() == [2, 5, 6, 3, 7, 3]
    assert sequence.segment_ids.tolist() == [0, 0, 0, 0, 1, 1]
    (sequence,) = to_sequences([TextExample("a b", "")], TOKENIZER, 128)
    assert sequence.ids.tolist() == [2, 5, 6, 3, 3]
    assert sequence.segment_ids.tolist() == [0, 0, 0, 0, 1]
    assert to_sequences([], TOKENIZER, 128) == []


def test_the_first_cut_row_is_named():
    rows = [TextExample("a"), TextExample("a b c d", source="x.tsv", line=7), TextExample("a b c d", row_id="9")]
    problems = Problems()
    to_sequences(rows, TOKENIZER, 5, problems)
    assert problems.as_dict() == {TRUNCATED: {"count": 2, "first": "x.tsv:7"}}
    assert rows[2].place == "row 9"
    with pytest.raises(ValueError, match="max_seq_length=4 has no room"):
        to_sequences(rows, TOKENIZER, 4)


@pytest.mark.parametrize(("most_a", "most_b"), [(40, 3), (3, 40), (40, 40), (5, 5), (40, None)])
def test_windows_lose_nothing(most_a, most_b):
    rng = np.random.default_rng(1)
    examples = [TextExample(text(rng, most_a), None if most_b is None else text(rng, most_b)) for _ in range(100)]
    problems = Problems()
    sequences, owners = to_windows(examples, TOKENIZER, 16, 4, problems)
    assert (np.diff(owners) >= 0).all() and set(owners.tolist()) == set(range(100))
    assert max(len(sequence.ids) for sequence in sequences) <= 16
    for row, example in enumerate(examples):
        mine = [sequences[i] for i in np.flatnonzero(owners == row)]
        whole = by_the_rules(example, 1000)
        if len(whole.ids) <= 16:
            assert len(mine) == 1 and mine[0].ids.tolist() == whole.ids.tolist()
        for segment in (0, 1):
            wanted = whole.ids[whole.segment_ids == segment].tolist()
            seen = {tuple(part.ids[part.segment_ids == segment].tolist()) for part in mine}
            tokens = wanted[1:-1] if segment == 0 else wanted[:-1]
            pieces = [part[1:-1] if segment == 0 else part[:-1] for part in seen]
            # Windows of 6 or more that start 4 apart: every 3 tokens in a row are in one.
            joined = ["".join(chr(i) for i in piece) for piece in pieces]
            for start in range(max(len(tokens) - 2, 1)):
                assert any("".join(map(chr, tokens[start : start + 3])) in piece for piece in joined)
    long = sum(len(by_the_rules(example, 1000).ids) > 16 for example in examples)
    assert problems.counts.get(IN_WINDOWS, 0) == long


def test_windows_by_hand():
    sequences, owners = to_windows([TextExample("a b c d e f", "z"), TextExample("a")], TOKENIZER, 7, 2)
    assert owners.tolist() == [0, 0, 0, 1]
    assert [sequence.ids.tolist() for sequence in sequences] == [
        [2, 5, 6, 7, 3, 30, 3],
        [2, 7, 8, 9, 3, 30, 3],
        [2, 9, 10, 3, 30, 3],
        [2, 5, 3],
    ]


def test_labels_are_found_and_numbered():
    rows = [TextExample("x", label=label) for label in ("b", "a", "b")]
    assert find_labels(rows) == ("a", "b")
    assert label_ids(rows, ("a", "b")).tolist() == [1, 0, 1]
    assert find_labels([TextExample("x", label=str(i)) for i in (10, 9, -1)]) == ("-1", "9", "10")
    assert find_labels([TextExample("x", label=label) for label in ("10", "9", "x")]) == ("10", "9", "x")


def test_bad_labels_are_named():
    unseen = TextExample("x", label="c", source="dev.tsv", line=12)
    with pytest.raises(ValueError, match=r"dev.tsv:12: label 'c' was not seen in training, which has 2 \(a, b\)"):
        label_ids([unseen], ("a", "b"))
    with pytest.raises(ValueError, match="row 5: no label"):
        find_labels([TextExample("x", row_id="5")])
    with pytest.raises(ValueError, match=r"examples of a\.tsv have 1 different labels \(a\)"):
        find_labels([TextExample("x", label="a", source="a.tsv")])
    with pytest.raises(ValueError, match=r"1 different|0 different labels \(no rows\)"):
        find_labels([])


def test_scores():
    with pytest.raises(ValueError, match=r"row \(without id\): the score '1e300' is beyond 3.403e\+38"):
        label_scores([TextExample("x", label="1e300")])
    assert label_scores([TextExample("x", label=2.5), TextExample("x", label="1e1")]).tolist() == [2.5, 10.0]
    for bad in ("high", "nan", "inf"):
        with pytest.raises(ValueError, match=f"d.tsv:3: '{bad}' is no score"):
            label_scores([TextExample("x", label=bad, source="d.tsv", line=3)])
