from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from bert_jax.data import examples
from bert_jax.data.examples import ExampleSettings, Instances, Text, draw_chunks, make_instances, read_text
from tests.data.sequential_examples import Pair, make_pairs
from tests.data.synthetic_text import SyntheticText, random_text, text_of


def whole(corpus: SyntheticText, settings: ExampleSettings) -> Text:
    return read_text(corpus, [(0, len(corpus.sentences) - 1)], settings)


def many_passes(corpus: SyntheticText, settings: ExampleSettings, passes: int, seed: int = 0) -> Instances:
    text = whole(corpus, settings)
    made = [make_instances(text, settings, 1000 * seed + key) for key in range(passes)]
    return Instances(*(np.concatenate(field) for field in zip(*made, strict=True)))


def sequential_passes(corpus: SyntheticText, max_seq_length: int, passes: int) -> list[Pair]:
    offsets, borders = corpus.sentences.tolist(), corpus.documents.tolist()
    documents = [
        [list(range(offsets[i], offsets[i + 1])) for i in range(first, end)] for first, end in pairwise(borders)
    ]
    return [pair for seed in range(passes) for pair in make_pairs(documents, max_seq_length, seed)]


def as_instances(pairs: list[Pair]) -> Instances:
    """Token i has id i, so that a run of tokens is its first token and its length."""
    columns = [(p.a[0], len(p.a), p.b[0], len(p.b), p.label) for p in pairs]
    return Instances(*np.array(columns).T)


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """Largest difference of the two distribution functions (Kolmogorov-Smirnov)."""
    values = np.union1d(x, y)
    below_x = np.searchsorted(np.sort(x), values, side="right") / len(x)
    below_y = np.searchsorted(np.sort(y), values, side="right") / len(y)
    return float(np.abs(below_x - below_y).max())


def cut_in_front(corpus: SyntheticText, start: np.ndarray) -> np.ndarray:
    """Tokens between the begin of the sentence that holds `start`, and `start`."""
    return start - corpus.sentences[np.searchsorted(corpus.sentences, start, side="right") - 1]


# The same walk, against the plain sequential one


@pytest.mark.parametrize(
    ("documents", "sentences", "max_seq_length", "passes"),
    [(300, (5, 40), 128, 4), (300, (5, 40), 512, 8), (2500, (1, 3), 128, 4), (2, (30, 60), 64, 150)],
)
def test_distributions_equal_those_of_the_sequential_walk(
    documents: int, sentences: tuple[int, int], max_seq_length: int, passes: int
):
    corpus = random_text(1, documents, sentences)
    settings = ExampleSettings(max_seq_length)
    ours = many_passes(corpus, settings, passes)
    theirs = as_instances(sequential_passes(corpus, max_seq_length, passes))
    count = len(theirs.labels)
    assert abs(len(ours.labels) / count - 1) < 0.025
    assert abs(ours.labels.mean() - theirs.labels.mean()) < 3 * np.sqrt(0.5 / count)
    limit = 1.95 * np.sqrt(2 / count)  # exceeded by chance once in a thousand
    for label in (0, 1):
        x, y = ours.take(np.flatnonzero(ours.labels == label)), theirs.take(np.flatnonzero(theirs.labels == label))
        for field in ("a_length", "b_length", "a_start"):
            assert distance(getattr(x, field), getattr(y, field)) < 1.5 * limit, (label, field)
        assert distance(x.a_length + x.b_length, y.a_length + y.b_length) < 1.5 * limit
    for field in ("a_start", "b_start"):
        assert distance(*(cut_in_front(corpus, getattr(z, field)) for z in (ours, theirs))) < limit, field


def test_a_pass_covers_as_much_of_the_text_as_the_sequential_one():
    corpus = random_text(2, 300, (5, 40))

    def covered(instances: Instances) -> float:
        seen = np.zeros(corpus.vocab_size, bool)
        for field in ("a", "b"):
            first, length = getattr(instances, f"{field}_start"), getattr(instances, f"{field}_length")
            for begin, end in zip(first, first + length, strict=True):
                seen[begin:end] = True
        return float(seen.mean())

    ours = np.mean([covered(many_passes(corpus, ExampleSettings(128), 1, seed)) for seed in range(4)])
    theirs = covered(as_instances(make_pairs_of(corpus, 128)))
    assert abs(ours - theirs) < 0.01
    assert ours > 0.9


def make_pairs_of(corpus: SyntheticText, max_seq_length: int) -> list[Pair]:
    return sequential_passes(corpus, max_seq_length, 1)


# The rates measured on the original code


@pytest.mark.parametrize(
    ("documents", "sentences", "passes", "share"),
    [(4000, (5, 40), 1, 0.56), (8000, (1, 3), 1, 0.74), (1, (12, 12), 400, 0.57)],
)
def test_share_of_random_pairs(documents: int, sentences: tuple[int, int], passes: int, share: float):
    made = many_passes(random_text(3, documents, sentences), ExampleSettings(128), passes)
    assert abs(made.labels.mean() - share) < 0.005 + 3 * np.sqrt(0.25 / len(made.labels))


def test_fill_is_that_of_the_original():
    # The sentence lengths behind the measured 0.90 and 0.59 are not known; no mean gives both exactly.
    for mean_length, measured in ((24, (0.88, 0.59)), (28, (0.90, 0.63))):
        corpus = random_text(4, 20_000, (5, 40), mean_length)
        for max_seq_length, fill in zip((128, 512), measured, strict=True):
            made = many_passes(corpus, ExampleSettings(max_seq_length), 1)
            assert abs((made.a_length + made.b_length + 3).mean() / max_seq_length - fill) < 0.015


def test_a_tenth_of_the_documents_is_made_into_short_sequences():
    corpus = text_of([[1] * 40] * 4000)
    settings = ExampleSettings(23)
    chunks = draw_chunks(whole(corpus, settings), settings, 5)
    first = chunks.start % 40 == 0
    targets = chunks.target[first]
    assert len(targets) == 4000
    # uniform in [2, 20]: one of 19 is as long as the others
    assert abs((targets < 20).mean() - 0.1 * 18 / 19) < 0.015
    assert targets.min() == 2
    assert abs(targets[targets < 20].mean() - 10.5) < 1
    across = ExampleSettings(23, fill="across_documents")
    targets = draw_chunks(whole(corpus, across), across, 5).target
    assert abs((targets < 20).mean() - 0.1 * 18 / 19) < 0.015
    never = ExampleSettings(23, short_seq_prob=0.0)
    assert set(draw_chunks(whole(corpus, never), never, 5).target) == {20}
    always = ExampleSettings(23, short_seq_prob=1.0)
    assert set(draw_chunks(whole(corpus, always), always, 5).target) == set(range(2, 21))


# By hand


def test_a_document_that_fits_gives_one_next_pair_or_two_random_ones():
    corpus = text_of([[3, 4], [5, 2]])
    settings = ExampleSettings(64, short_seq_prob=0.0)
    seen = set()
    for key in range(60):
        made = make_instances(whole(corpus, settings), settings, key)
        seen |= set(zip(*(field.tolist() for field in made), strict=True))
    first = {(0, 3, 3, 4, 0), (0, 3, 7, 7, 1), (0, 3, 12, 2, 1), (3, 4, 7, 7, 1), (3, 4, 12, 2, 1)}
    second = {(7, 5, 12, 2, 0), (7, 5, 0, 7, 1), (7, 5, 3, 4, 1), (12, 2, 0, 7, 1), (12, 2, 3, 4, 1)}
    assert seen == first | second


def test_the_longer_segment_is_truncated_and_ties_take_from_b():
    for a, b, limit, expected in [
        (10, 3, 8, (5, 3)),
        (3, 10, 8, (3, 5)),
        (10, 10, 8, (4, 4)),
        (10, 10, 7, (4, 3)),
        (3, 9, 7, (3, 4)),
        (4, 3, 7, (4, 3)),
        (1, 1, 7, (1, 1)),
        (9, 3, 7, (4, 3)),
    ]:
        one = np.array
        made = examples._truncate((one([0]), one([a])), (one([50]), one([b])), one([0]), limit, key=3)
        assert (made.a_length[0], made.b_length[0]) == expected
        assert 0 <= made.a_start[0] <= a - expected[0]
        assert 50 <= made.b_start[0] <= 50 + b - expected[1]


def test_each_truncated_token_is_from_the_front_or_the_back_by_a_fair_coin():
    size, zeros = 32_000, np.zeros(32_000, np.int64)
    for a, b in ((10, 3), (3, 10)):  # five tokens too many, all of them in the longer segment
        made = examples._truncate((zeros, zeros + a), (zeros, zeros + b), zeros, 8, key=3)
        cut = np.bincount(made.a_start if a > b else made.b_start, minlength=6)
        assert np.abs(cut - size / 32 * np.array([1, 5, 10, 10, 5, 1])).max() < 5 * np.sqrt(size * 10 / 32)
        assert not (made.b_start if a > b else made.a_start).any()


def test_random_text_is_of_another_document_wherever_there_is_one():
    corpus = random_text(6, 40, (1, 6))
    made = many_passes(corpus, ExampleSettings(64), 20)
    document = np.repeat(np.arange(40), np.diff(corpus.documents))
    of = lambda start: document[np.searchsorted(corpus.sentences, start, side="right") - 1]  # noqa: E731
    same = of(made.a_start) == of(made.b_start)
    assert not same[made.labels == 1].any()
    assert same[made.labels == 0].all()
    alone = many_passes(text_of([[5] * 30]), ExampleSettings(64), 20)
    assert 0 < alone.labels.mean() < 1


def test_sentence_order_pairs_are_neighbours_and_half_of_them_swapped():
    corpus = random_text(7, 500, (1, 12), mean_length=10)
    made = many_passes(corpus, ExampleSettings(256, pairs="sop"), 3)
    assert abs(made.labels.mean() - 0.5) < 0.03
    assert made.b_length.min() >= 1
    whole_pairs = made.a_length + made.b_length < 253
    kept = made.labels[whole_pairs]
    touching = np.where(
        kept == 1,
        (made.b_start + made.b_length)[whole_pairs] == made.a_start[whole_pairs],
        (made.a_start + made.a_length)[whole_pairs] == made.b_start[whole_pairs],
    )
    # Nothing follows a chunk of a single token.
    assert (made.a_length[whole_pairs][~touching] == 1).all()
    assert (kept[~touching] == 1).all()
    assert touching.mean() > 0.97


def test_single_segments_hold_the_whole_chunk():
    corpus = random_text(8, 300, (5, 40))
    made = many_passes(corpus, ExampleSettings(128, pairs="single"), 1)
    assert made.a_length.max() == 126
    assert not made.b_length.any()
    assert not made.labels.any()
    short = many_passes(text_of([[3, 4], [5]]), ExampleSettings(128, pairs="single"), 1)
    assert sorted(short.a_length.tolist()) == [5, 7]


def test_filling_across_documents_fills_and_keeps_labels_true():
    corpus = random_text(9, 2000, (5, 40))
    settings = {fill: ExampleSettings(512, short_seq_prob=0.0, fill=fill) for fill in ("document", "across_documents")}
    fills, counts = {}, {}
    document = np.repeat(np.arange(2000), np.diff(corpus.documents))
    of = lambda start: document[np.searchsorted(corpus.sentences, start, side="right") - 1]  # noqa: E731
    for fill, setting in settings.items():
        made = many_passes(corpus, setting, 1)
        counts[fill] = len(made.labels)
        fills[fill] = (made.a_length + made.b_length + 3).mean() / 512
        follows = made.labels == 0
        last_of_a = (made.a_start + made.a_length - 1)[follows]
        assert (of(last_of_a) == of(made.b_start[follows])).mean() > 0.98  # truncated B may begin later
    assert fills["across_documents"] > 0.97
    assert fills["document"] < 0.65
    assert counts["across_documents"] < 0.7 * counts["document"]


# Odd texts


def test_odd_documents():
    for documents in ([[1]], [[1], [1]], [[1, 1]], [[1000]], [[1], [500, 3]]):
        for pairs in ("nsp", "sop", "single"):
            settings = ExampleSettings(16, pairs=pairs)
            made = make_instances(whole(text_of(documents), settings), settings, 0)
            assert len(made.labels) >= 1
            assert made.a_length.min() >= 1
            assert (made.b_length.min() >= 1) == (pairs != "single")
            assert (made.a_length + made.b_length).max() <= settings.max_num_tokens


def test_a_sentence_longer_than_a_row_is_used_whole():
    corpus = text_of([[1000, 5], [7, 9]])
    settings = ExampleSettings(35)
    text = whole(corpus, settings)
    assert np.diff(text.sentences).max() == 16
    assert text.tokens.tolist() == list(range(1021))
    assert text.documents.tolist() == [0] * (len(text.documents) - 2) + [1, 1]
    seen = np.zeros(1021, bool)
    for key in range(30):
        made = make_instances(text, settings, key)
        for first, length in zip(made.a_start, made.a_length, strict=True):
            seen[first : first + length] = True
    assert seen.all()


def test_a_long_document_is_cut_into_equal_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(examples, "PART_ROWS", 2)
    corpus = text_of([[10] * 25, [10] * 3, [10] * 10])
    text = whole(corpus, ExampleSettings(53))
    assert text.parts.tolist() == [0, 9, 17, 25, 28, 38]
    across = whole(corpus, ExampleSettings(53, fill="across_documents"))
    assert across.parts.tolist() == [0, 10, 19, 29, 38]


def test_spans_of_one_document_are_not_joined():
    corpus = text_of([[4] * 30])
    text = read_text(corpus, [(20, 30), (0, 10)], ExampleSettings(64))
    assert text.tokens.tolist() == [*range(80, 120), *range(40)]
    assert text.parts.tolist() == [0, 10, 20]
    assert text.documents.tolist() == [0] * 20


# Errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExampleSettings(4), "max_seq_length is 4"),
        (lambda: ExampleSettings(5, separators=2), "max_seq_length is 5.* at least 6"),
        (lambda: ExampleSettings(short_seq_prob=1.5), r"short_seq_prob is 1\.5"),
        (lambda: ExampleSettings(pairs="pairs"), "nsp, sop, single"),
        (lambda: ExampleSettings(fill="full"), "document, across_documents"),
    ],
)
def test_wrong_settings(make: Callable[[], ExampleSettings], message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_damaged_text():
    corpus = text_of([[3, 4]])
    small = SyntheticText(corpus.tokens, corpus.sentences, corpus.documents, vocab_size=5)
    with pytest.raises(ValueError, match="token id 6, its vocabulary ends at 4"):
        whole(small, ExampleSettings())
    empty = SyntheticText(corpus.tokens, np.array([0, 3, 3, 7]), np.array([0, 3]), vocab_size=9)
    with pytest.raises(ValueError, match="sentence 1 of the corpus has no tokens"):
        whole(empty, ExampleSettings())
