import numpy as np
import pytest

from bert_jax.data import examples, order
from bert_jax.data.examples import ExampleSettings, draw_chunks, make_instances, read_text
from bert_jax.data.order import Blocks, Order, find_borders, find_order
from tests.data.synthetic_text import SyntheticText, random_text, text_of

SETTINGS = ExampleSettings(32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 1,000 tokens, so that a small text has many."""
    monkeypatch.setattr(order, "BLOCK_TOKENS", 1000)
    monkeypatch.setattr(examples, "PART_ROWS", 3)


def test_borders_stay_between_documents_and_cut_only_long_ones(small_blocks: None):
    ordinary = text_of([[10] * 30, [10] * 60, [10] * 40, [10] * 80, [10] * 90])
    # Token 1,000 lies nearest to the begin of the third document, token 2,000 to the end of the fourth.
    assert find_borders(ordinary).tolist() == [0, 90, 210, 300]
    long = text_of([[10] * 20, [10] * 500])
    assert find_borders(long).tolist() == [0, 100, 200, 300, 400, 520]
    assert find_borders(text_of([[3]])).tolist() == [0, 1]
    assert find_borders(text_of([[5000], [5000]])).tolist() == [0, 1, 2]


def test_every_sentence_is_in_one_block(small_blocks: None):
    for seed in range(10):
        corpus = random_text(seed, 100, (1, 80))
        borders = find_borders(corpus)
        assert borders[0] == 0
        assert borders[-1] == len(corpus.sentences) - 1
        assert (np.diff(borders) > 0).all()
        assert np.diff(corpus.sentences[borders]).max() <= 2000 + 40
        assert corpus.released


def test_an_epoch_serves_each_slot_once():
    blocks = Blocks(np.arange(21), np.arange(1, 21))
    where = Order(blocks, seed=3)
    assert where.num_examples == 210
    runs = where.locate(np.arange(420))
    assert [(run.epoch, run.group) for run in runs] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    for run in runs:
        group = where.plan(run.epoch).groups[run.group]
        assert run.slots.tolist() == list(range(blocks.slots[group].sum()))
    for epoch in (0, 1):
        assert sorted(np.concatenate(where.plan(epoch).groups)) == list(range(20))
    assert not np.array_equal(where.plan(0).groups[0], where.plan(1).groups[0])


def test_any_index_is_found_alone():
    where = Order(Blocks(np.arange(31), np.full(30, 7)), seed=0)
    together = [(run.epoch, run.group, slot) for run in where.locate(np.arange(500)) for slot in run.slots.tolist()]
    for index in (0, 55, 56, 209, 210, 499):
        (run,) = where.locate(np.array([index]))
        assert (run.epoch, run.group, run.slots.tolist()) == (*together[index][:2], [together[index][2]])
    (far,) = where.locate(np.array([10**12]))
    assert far.epoch == 10**12 // 210


def test_a_group_serves_the_examples_of_its_blocks_shuffled(small_blocks: None):
    corpus = random_text(1, 400, (5, 40))
    where = find_order(corpus, SETTINGS, seed=5)
    assert len(where.blocks.slots) > 32
    group = where.make_group(corpus, SETTINGS, 0, 1)
    blocks = where.plan(0).groups[1]
    assert len(group.instances.labels) == where.blocks.slots[blocks].sum()
    text = read_text(corpus, where.blocks.spans(blocks), SETTINGS)
    assert np.array_equal(text.tokens, group.text.tokens)
    places = group.instances.a_start
    assert abs(np.corrcoef(places, np.arange(len(places)))[0, 1]) < 0.1


def test_an_epoch_is_about_one_pass(small_blocks: None):
    for documents, sentences in ((40, (5, 40)), (1500, (1, 9)), (4, (500, 900))):
        corpus = random_text(2, documents, sentences)
        where = find_order(corpus, SETTINGS, seed=0)
        text = read_text(corpus, [(0, len(corpus.sentences) - 1)], SETTINGS)
        passes = [len(draw_chunks(text, SETTINGS, key).start) for key in range(5)]
        assert abs(where.num_examples / np.mean(passes) - 1) < 0.06


def test_slots_beyond_one_pass_come_from_another():
    corpus = random_text(3, 30, (5, 20))
    size = len(make_instances(read_text(corpus, [(0, 50)], SETTINGS), SETTINGS, 0).labels)
    few, many = (Order(Blocks(np.array([0, 50]), np.array([count])), 1) for count in (5, 3 * size))
    assert len(few.make_group(corpus, SETTINGS, 0, 0).instances.labels) == 5
    instances = many.make_group(corpus, SETTINGS, 0, 0).instances
    assert len(instances.labels) == 3 * size
    assert len(set(zip(*(field.tolist() for field in instances), strict=True))) > 1.5 * size


def test_seed_and_epoch_change_the_examples():
    corpus = random_text(4, 60, (5, 20))
    starts = set()
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        group = find_order(corpus, SETTINGS, seed).make_group(corpus, SETTINGS, epoch, 0)
        starts.add(tuple(group.instances.a_start.tolist()))
    assert len(starts) == 3


def test_an_empty_corpus():
    nothing = SyntheticText(np.zeros(0, np.uint32), np.zeros(1, np.int64), np.zeros(1, np.int64), 5)
    with pytest.raises(ValueError, match="the corpus has 0 documents"):
        find_order(nothing, SETTINGS, 0)
