from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import examples, order
from bert_jax.data.batches import Batch, PretrainingBatches, assemble, evaluation_batches
from bert_jax.data.corpus import Corpus, write_corpus
from bert_jax.data.examples import ExampleSettings, Instances
from tests.data.synthetic_text import SpecialIds, random_text, text_of

SETTINGS = ExampleSettings(32)
SPECIAL = SpecialIds()


def batches_of(seed: int = 0, batch_size: int = 16, settings: ExampleSettings = SETTINGS) -> PretrainingBatches:
    return PretrainingBatches(random_text(1, 100, (5, 40)), SPECIAL, settings, seed, batch_size)


def same(x: Batch, y: Batch) -> bool:
    return x.keys() == y.keys() and all(np.array_equal(x[name], y[name]) for name in x)


def joined(parts: list[Batch]) -> Batch:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# Format


def test_rows_by_hand():
    tokens = np.arange(100, 200, dtype=np.uint16)
    instances = Instances(*np.array([[0, 2, 50, 3, 1], [10, 1, 11, 1, 0], [94, 4, 98, 2, 0]]).T)
    ids = SpecialIds(pad_id=0, cls_id=2, sep_id=3)
    batch = assemble(tokens, instances, ExampleSettings(9), ids)
    assert batch["input_ids"].tolist() == [
        [2, 100, 101, 3, 150, 151, 152, 3, 0],
        [2, 110, 3, 111, 3, 0, 0, 0, 0],
        [2, 194, 195, 196, 197, 3, 198, 199, 3],
    ]
    assert batch["segment_ids"].tolist() == [
        [0, 0, 0, 0, 1, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 1, 1],
    ]
    assert batch["sequence_ids"].tolist() == [[1] * 8 + [0], [1] * 5 + [0] * 4, [1] * 9]
    assert batch["position_ids"][1].tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0]
    assert batch["next_sentence_labels"].tolist() == [[1], [0], [0]]
    assert batch["example_columns"].tolist() == [[0]] * 3
    assert batch["example_weights"].tolist() == [[1.0]] * 3
    dtypes = {name: array.dtype for name, array in batch.items()}
    assert dtypes.pop("example_weights") == np.float32
    assert set(dtypes.values()) == {np.dtype(np.int32)}


def test_pairs_of_robertas_layout_have_two_separators_between():
    instances = Instances(*np.array([[0, 2, 50, 3, 1], [94, 4, 98, 2, 0]]).T)
    settings = ExampleSettings(10, separators=2)
    assert settings.max_num_tokens == 6
    batch = assemble(np.arange(100, 200), instances, settings, SpecialIds(pad_id=0, cls_id=2, sep_id=3))
    assert batch["input_ids"].tolist() == [
        [2, 100, 101, 3, 3, 150, 151, 152, 3, 0],
        [2, 194, 195, 196, 197, 3, 3, 198, 199, 3],
    ]
    assert batch["segment_ids"].tolist() == [[0] * 5 + [1] * 4 + [0], [0] * 7 + [1] * 3]
    assert batch["sequence_ids"].tolist() == [[1] * 9 + [0], [1] * 10]
    single = ExampleSettings(7, pairs="single", separators=2)
    assert single.max_num_tokens == 5
    batch = assemble(np.arange(100, 110), instances.take(slice(1)), single, SpecialIds(0, 2, 3))
    assert batch["input_ids"].tolist() == [[2, 100, 101, 3, 0, 0, 0]]


def test_single_segments_have_one_separator():
    instances = Instances(*np.array([[5, 3, 8, 0, 0]]).T)
    batch = assemble(np.arange(100, 110), instances, ExampleSettings(7, pairs="single"), SpecialIds(0, 2, 3))
    assert batch["input_ids"].tolist() == [[2, 105, 106, 107, 3, 0, 0]]
    assert not batch["segment_ids"].any()
    assert batch["sequence_ids"].tolist() == [[1, 1, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("pairs", ["nsp", "sop", "single"])
@pytest.mark.parametrize("fill", ["document", "across_documents"])
def test_every_row_is_well_formed(pairs: str, fill: str):
    batches = batches_of(settings=ExampleSettings(64, pairs=pairs, fill=fill))
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        ids, used = batch["input_ids"], batch["sequence_ids"] == 1
        assert (ids[:, 0] == SPECIAL.cls_id).all()
        assert ((ids == SPECIAL.sep_id).sum(axis=1) == (1 if pairs == "single" else 2)).all()
        assert np.array_equal(ids == SPECIAL.pad_id, ~used)
        last = used.sum(axis=1) - 1
        assert (ids[np.arange(len(ids)), last] == SPECIAL.sep_id).all()
        inside = used & (ids < SPECIAL.pad_id)
        runs_on = (np.diff(ids, axis=1) == 1) | ~inside[:, 1:] | ~inside[:, :-1]
        assert runs_on.all()  # the ids of the synthetic text count up within a segment


# batch = f(seed, step)


def test_a_batch_depends_on_seed_and_step_alone():
    forward, backward = batches_of(), batches_of()
    steps = range(3 * forward.steps_per_epoch)
    first = [forward.batch(step) for step in steps]
    second = [backward.batch(step) for step in reversed(steps)][::-1]
    assert all(map(same, first, second))
    assert not same(first[0], first[1])
    assert not same(first[0], batches_of(seed=1).batch(0))


def test_batch_size_and_hosts_do_not_change_the_stream():
    small, large = batches_of(batch_size=8), batches_of(batch_size=32)
    for step in (0, 5, large.steps_per_epoch, 3 * large.steps_per_epoch):
        whole = large.batch(step)
        assert same(whole, joined([small.batch(4 * step + part) for part in range(4)]))
        hosts = [large.batch(step, host, 4) for host in range(4)]
        assert same(whole, joined(hosts))
    strided = large.examples(64 + np.arange(32)[1::2])
    assert np.array_equal(strided["input_ids"], large.batch(2)["input_ids"][1::2])
    assert large.examples(np.zeros(0, np.int64))["input_ids"].shape == (0, 32)


def test_an_epoch_uses_each_example_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(order, "BLOCK_TOKENS", 1000)
    monkeypatch.setattr(order, "BLOCKS_PER_GROUP", 3)
    monkeypatch.setattr(examples, "PART_ROWS", 8)
    batches = batches_of(batch_size=10)
    groups = -(-len(batches._order.blocks.slots) // 3)
    assert groups > 5
    for epoch in (0, 1):
        wanted = [batches._order.make_group(random_text(1, 100, (5, 40)), SETTINGS, epoch, g) for g in range(groups)]
        rows = [assemble(g.text.tokens, g.instances, SETTINGS, SPECIAL)["input_ids"] for g in wanted]
        indices = epoch * batches.num_examples + np.arange(batches.num_examples)
        served = np.concatenate([batches.examples(some)["input_ids"] for some in np.array_split(indices, 40)])
        assert len(served) == batches.num_examples
        assert np.array_equal(served[np.lexsort(served.T)], np.concatenate(rows)[np.lexsort(np.concatenate(rows).T)])


def test_a_corpus_on_disk_gives_the_same_as_in_memory(tmp_path: Path):
    random = np.random.default_rng(0)
    documents = [[random.integers(5, 99, 9).tolist() for _ in range(12)] for _ in range(30)]
    write_corpus(tmp_path / "c", documents, vocab_size=100)
    memory = text_of([[9] * 12] * 30)
    flat = np.concatenate([token for document in documents for token in document])
    ids = SpecialIds(0, 2, 3)
    disk_batch = PretrainingBatches(Corpus.open(tmp_path / "c"), ids, SETTINGS, 4, 8).batch(11)
    memory_batch = PretrainingBatches(memory, SpecialIds(10**6, 10**6, 10**6), SETTINGS, 4, 8).batch(11)
    text = memory_batch["input_ids"] < 10**6
    assert np.array_equal(disk_batch["input_ids"][text], flat[memory_batch["input_ids"][text]])
    assert np.array_equal(disk_batch["segment_ids"], memory_batch["segment_ids"])


# Evaluation


def test_evaluation_counts_each_example_once_and_pads():
    corpus = random_text(1, 30, (5, 20))
    size = PretrainingBatches(corpus, SPECIAL, SETTINGS, 7, 1).num_examples
    batch_size = 16 if size % 16 else 17  # the last batch is not full
    made = list(evaluation_batches(corpus, SPECIAL, SETTINGS, 7, batch_size))
    assert len(made) == -(-size // batch_size)
    assert {batch["input_ids"].shape for batch in made} == {(batch_size, 32)}
    assert sum(batch["example_weights"].sum() for batch in made) == size
    last = made[-1]
    padding = last["example_weights"][:, 0] == 0
    assert padding.sum() == batch_size - size % batch_size
    assert (last["input_ids"][padding] == SPECIAL.pad_id).all()
    assert not last["sequence_ids"][padding].any()
    whole = joined(made)
    train = PretrainingBatches(corpus, SPECIAL, SETTINGS, 7, 1).examples(np.arange(size))
    assert same({name: array[:size] for name, array in whole.items()}, train)


def test_evaluation_on_part_of_the_examples():
    corpus = random_text(1, 30, (5, 20))
    whole = list(evaluation_batches(corpus, SPECIAL, SETTINGS, 7, 16, max_examples=20))
    assert sum(batch["example_weights"].sum() for batch in whole) == 20
    few = list(evaluation_batches(text_of([[3, 4]]), SPECIAL, SETTINGS, 0, 16, max_examples=100))
    assert len(few) == 1


# Errors and odd sizes


def test_errors():
    corpus = text_of([[3, 4]])
    with pytest.raises(ValueError, match=r"batch_size is 500, the corpus gives \d examples of 32 columns"):
        PretrainingBatches(corpus, SPECIAL, SETTINGS, 0, 500)
    with pytest.raises(ValueError, match="batch_size is 0"):
        PretrainingBatches(corpus, SPECIAL, SETTINGS, 0, 0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        evaluation_batches(corpus, SPECIAL, SETTINGS, 0, 0)
    with pytest.raises(ValueError, match="step is -1"):
        batches_of().batch(-1)


@pytest.mark.parametrize(("documents", "sentences"), [(1, 1_000_000), (300_000, 1)])
def test_giant_and_tiny_documents(documents: int, sentences: int):
    corpus = random_text(1, documents, (sentences, sentences), mean_length=4)
    batches = PretrainingBatches(corpus, SPECIAL, ExampleSettings(128), 0, 256)
    assert batches.batch(1000)["input_ids"].shape == (256, 128)
