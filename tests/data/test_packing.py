"""Packing: nothing overlaps, nothing is lost, and what comes out of a batch is what went in."""

import numpy as np
import pytest

from bert_jax.data.packing import (
    Examples,
    PackedBatches,
    Shape,
    Unpacked,
    pack,
    pack_in_shapes,
    packed_batches,
    row_shape,
)
from bert_jax.data.sequences import Sequence, pair, single, truncate_pair


class Special:
    pad_id, cls_id, sep_id, pair_separators = 0, 1, 2, 1


def sequences(count: int, low: int, high: int, seed: int = 0) -> list[Sequence]:
    rng = np.random.default_rng(seed)
    return [
        pair(rng.integers(5, 99, rng.integers(low, high)).tolist(), rng.integers(5, 99, 2).tolist(), Special())
        for _ in range(count)
    ]


def examples(count: int = 50, low: int = 1, high: int = 40, group: int = 1) -> Examples:
    made = sequences(count * group, low, high)
    tokens = sum(len(sequence.ids) for sequence in made)
    return Examples.of(
        made,
        group=group,
        targets={"labels": np.arange(count, dtype=np.int32) + 100},
        token_targets={"tags": (np.arange(tokens, dtype=np.int32), -1)},
        column_targets={"ends": np.asarray([len(sequence.ids) - 1 for sequence in made], np.int64)},
    )


def taken_apart(batch: dict[str, np.ndarray], data: Examples) -> list[int]:
    """Checks every example of a batch against where it came from; their indices."""
    found = []
    for row, slot in zip(*np.nonzero(batch["example_weights"]), strict=True):
        index = int(batch["example_indices"][row, slot])
        found.append(index)
        assert batch["labels"][row, slot] == 100 + index
        for k in range(data.group):
            source = slice(*data.bounds[index * data.group + k : index * data.group + k + 2])
            number = slot * data.group + k
            columns = np.flatnonzero(batch["sequence_ids"][row] == number + 1)
            assert columns[0] == batch["example_columns"][row, number]
            assert columns[-1] == batch["ends"][row, number]
            np.testing.assert_array_equal(batch["input_ids"][row, columns], data.ids[source])
            np.testing.assert_array_equal(batch["segment_ids"][row, columns], data.segment_ids[source])
            np.testing.assert_array_equal(batch["position_ids"][row, columns], np.arange(len(columns)))
            np.testing.assert_array_equal(batch["tags"][row, columns], np.arange(source.start, source.stop))
    padding = batch["sequence_ids"] == 0
    assert not batch["input_ids"][padding].any() and (batch["tags"][padding] == -1).all()
    assert (batch["example_indices"][batch["example_weights"] == 0] == -1).all()
    return found


def test_best_fit_decreasing_by_hand() -> None:
    # 6 opens a row of 10; 5 another; 4 fits the first exactly; 3 and 2 fill the second.
    placement = pack(np.asarray([2, 6, 3, 5, 4]), 10, 8)
    assert placement.num_rows == 2
    assert placement.rows.tolist() == [1, 0, 1, 1, 0]
    assert placement.columns.tolist() == [8, 0, 5, 0, 6]
    assert placement.slots.tolist() == [2, 0, 1, 0, 1]
    assert pack(np.asarray([1, 1, 1]), 10, 2).num_rows == 2
    assert pack(np.zeros(0, np.int64), 10, 2).num_rows == 0
    with pytest.raises(ValueError, match="an example has 11 tokens, a row 10; raise max_seq_length"):
        pack(np.asarray([11]), 10, 2)


def test_nothing_overlaps_and_few_rows_are_wasted() -> None:
    lengths = np.random.default_rng(0).integers(5, 90, 3000)
    placement = pack(lengths, 128, 16)
    used = np.zeros((placement.num_rows, 128), int)
    for row, column, length in zip(placement.rows, placement.columns, lengths, strict=True):
        used[row, column : column + length] += 1
    assert used.max() == 1
    assert placement.num_rows < 1.03 * lengths.sum() / 128 + 1


@pytest.mark.parametrize("group", [1, 4])
def test_batches_hold_exactly_their_examples(group: int) -> None:
    data = examples(group=group)
    batches = PackedBatches(data, pad_id=0, seed=3, batch_size=8, max_seq_length=64, row_multiple=2)
    served = []
    for step in range(25):
        batch = batches.batch(step)
        found = taken_apart(batch, data)
        assert sorted(found) == sorted(batches.indices(step).tolist())
        assert batch["input_ids"].shape[0] in batches.row_counts
        assert batch["input_ids"].shape[0] % 2 == 0
        served += batches.indices(step).tolist()
    assert len(batches.row_counts) <= 3
    epochs = np.reshape(served, (4, 50))
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs.tolist())
    assert (epochs[0] != epochs[1]).any()
    other = PackedBatches(data, pad_id=0, seed=3, batch_size=8, max_seq_length=64, row_multiple=2)
    np.testing.assert_array_equal(other.batch(17)["input_ids"], batches.batch(17)["input_ids"])


@pytest.mark.parametrize("group", [1, 4])
def test_a_pass_serves_every_example_once_in_one_shape(group: int) -> None:
    data = examples(group=group)
    batches = list(packed_batches(data, pad_id=0, max_seq_length=64, tokens_a_batch=300, row_multiple=2))
    assert len({batch["input_ids"].shape for batch in batches}) == 1
    assert sorted(index for batch in batches for index in taken_apart(batch, data)) == list(range(50))
    assert list(packed_batches(examples(0), pad_id=0, max_seq_length=64, tokens_a_batch=300)) == []


@pytest.mark.parametrize("group", [1, 4])
def test_outputs_come_back_in_the_order_of_the_examples(group: int) -> None:
    data = examples(group=group)
    unpacked = Unpacked(data)
    for batch in packed_batches(data, pad_id=0, max_seq_length=64, tokens_a_batch=300, row_multiple=2):
        unpacked.add(batch, {"double": 2 * batch["labels"], "pieces": np.stack([batch["input_ids"]] * 2, -1)})
    np.testing.assert_array_equal(unpacked.arrays["double"], 2 * data.targets["labels"])
    np.testing.assert_array_equal(unpacked.arrays["pieces"], np.stack([data.ids] * 2, -1))


def test_hosts_share_the_rows_of_a_packed_batch() -> None:
    batches = PackedBatches(examples(), pad_id=0, seed=3, batch_size=8, max_seq_length=64, row_multiple=2)
    whole, parts = batches.batch(5), [batches.batch(5, part, 2) for part in range(2)]
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)


def test_a_batch_has_no_more_rows_than_are_needed() -> None:
    (batch,) = packed_batches(examples(3), pad_id=0, max_seq_length=64, tokens_a_batch=64 * 64, row_multiple=2)
    assert len(batch["input_ids"]) == 2


def test_rows_are_as_long_as_the_longest_example_needs() -> None:
    assert row_shape(examples(), 512) == (128, 16)
    assert row_shape(Examples.of([single([7] * 200, Special())]), 512) == (256, 32)
    assert row_shape(Examples.of([single([7] * 500, Special())]), 509) == (509, 63)
    with pytest.raises(ValueError, match="a sequence has 202 tokens, max_seq_length is 128"):
        row_shape(Examples.of([single([7] * 200, Special())]), 128)
    with pytest.raises(ValueError, match="no example to train on"):
        PackedBatches(examples(0), pad_id=0, seed=0, batch_size=2, max_seq_length=64)


def test_truncation_is_the_originals() -> None:
    def original(a: list[int], b: list[int], most: int) -> tuple[list[int], list[int]]:
        a, b = list(a), list(b)
        while len(a) + len(b) > most:
            (a if len(a) > len(b) else b).pop()
        return a, b

    for m in range(8):
        for n in range(8):
            for most in range(12):
                a, b = list(range(m)), list(range(n))
                assert truncate_pair(a, b, most) == original(a, b, most), (m, n, most)


def test_rows_of_several_shapes() -> None:
    shapes = (Shape(10, 8), Shape(20, 2))
    # 15 opens a row of 20, 9 and 7 rows of 10; 5 fills the first exactly, 3 the row of 7.
    placement, kinds = pack_in_shapes(np.asarray([5, 15, 9, 3, 7]), shapes)
    assert kinds.tolist() == [1, 0, 0] and placement.num_rows == 3
    assert placement.rows.tolist() == [0, 0, 1, 2, 2] and placement.columns.tolist() == [15, 0, 0, 7, 0]
    # A row of 20 holds two items, one of 10 more.
    placement, kinds = pack_in_shapes(np.asarray([12, 2, 2, 2]), shapes)
    assert kinds.tolist() == [1, 0] and placement.rows.tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="an example has 21 tokens, a row 20"):
        pack_in_shapes(np.asarray([21]), shapes)


def test_several_columns_of_a_sequence() -> None:
    made = [Sequence(np.arange(length, dtype=np.int32), np.zeros(length, np.int32)) for length in (4, 3)]
    data = Examples.of(made, column_targets={"two": np.asarray([[1, 3], [0, 2]])})
    (batch,) = packed_batches(data, pad_id=0, max_seq_length=16, tokens_a_batch=16)
    assert batch["two"].shape == (1, 2, 2) and batch["two"][0].tolist() == [[1, 3], [4, 6]]


def test_a_hash_of_what_is_learned_from() -> None:
    made = [Sequence(np.arange(length, dtype=np.int32), np.zeros(length, np.int32)) for length in (4, 3)]
    tags = np.arange(7, dtype=np.int32)

    def hash_of(label: float = 1.0, first: int = 0, tag: int = 0, feature: float = 0.0) -> str:
        changed = [Sequence(made[0].ids + first, made[0].segment_ids), made[1]]
        features = np.full((7, 2), feature, np.float32)
        return Examples.of(
            changed,
            targets={"labels": np.asarray([0.0, label])},
            token_targets={"tags": (tags + tag, -1), "features": (features, 0.0)},
        ).sha256()

    assert hash_of() == hash_of(feature=1.0)  # stored features follow from the rest
    assert len({hash_of(), hash_of(label=2.0), hash_of(first=1), hash_of(tag=1)}) == 4
    assert Examples.of([]).sha256() != hash_of()
