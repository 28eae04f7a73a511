"""Entities against conlleval: cases counted by hand, and its counting of chunk starts and ends written out."""

import random

import pytest

from bert_jax.data.columns import FORMATS, read_columns
from bert_jax.tasks.entities import Span, convert, score, spans, tags, word_accuracy


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),
        ("I-PER I-PER O I-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),  # IOB1, and I- without B-
        ("I-PER B-PER I-PER", [(0, 1, "PER"), (1, 3, "PER")]),
        ("B-PER I-LOC I-LOC I-PER", [(0, 1, "PER"), (1, 3, "LOC"), (3, 4, "PER")]),  # type changes
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("S-PER S-PER B-LOC I-LOC E-LOC", [(0, 1, "PER"), (1, 2, "PER"), (2, 5, "LOC")]),
        ("B-PER E-PER E-PER I-PER", [(0, 2, "PER"), (2, 3, "PER"), (3, 4, "PER")]),
        ("O E-PER B-PER O", [(1, 2, "PER"), (2, 3, "PER")]),
        ("B-creative-work I-creative-work", [(0, 2, "creative-work")]),
        ("", []),
    ],
)
def test_spans_by_hand(sentence, expected):
    assert spans(sentence.split()) == [Span(*span) for span in expected]


def test_tags_by_hand():
    entities = [Span(0, 2, "A"), Span(2, 3, "A"), Span(3, 4, "B"), Span(5, 8, "B")]
    assert tags(entities, 9, "IOB1") == ["I-A", "I-A", "B-A", "I-B", "O", "I-B", "I-B", "I-B", "O"]
    assert tags(entities, 9, "IOB2") == ["B-A", "I-A", "B-A", "B-B", "O", "B-B", "I-B", "I-B", "O"]
    assert tags(entities, 9, "BIOES") == ["B-A", "E-A", "S-A", "S-B", "O", "B-B", "I-B", "E-B", "O"]
    for scheme in ("IOB1", "IOB2", "BIOES"):
        assert spans(tags(entities[::-1], 9, scheme)) == entities
        for other in ("IOB1", "IOB2", "BIOES"):
            assert convert(convert(tags(entities, 9, scheme), other), scheme) == tags(entities, 9, scheme)


@pytest.mark.parametrize("entities", [[(0, 0, "A")], [(1, 4, "A")], [(0, 2, "A"), (1, 3, "B")], [(-1, 1, "A")]])
def test_impossible_entities_are_refused(entities):
    with pytest.raises(ValueError, match="is empty, overlaps"):
        tags([Span(*span) for span in entities], 3, "IOB2")


@pytest.mark.parametrize("tag", ["", "B", "O-PER", "I-", "NN"])
def test_impossible_tags_and_schemes_are_refused(tag):
    with pytest.raises(ValueError, match="is neither O nor"):
        spans(["O", tag])
    with pytest.raises(ValueError, match="scheme='IOB'"):
        tags([], 1, "IOB")


def test_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O", "B-PER"], ["O", "B-MISC"]]
    found = [["B-PER", "I-PER", "O", "B-ORG"], ["I-ORG", "I-ORG", "B-PER"], ["O", "O"]]
    # Found: PER, ORG | ORG of 2 words, PER. Right: both PER.
    result = score(gold, found)
    assert str(result) == (
        "processed 9 tokens with 5 phrases; found: 4 phrases; correct: 2.\n"
        "accuracy:  55.56%; precision:  50.00%; recall:  40.00%; FB1:  44.44\n"
        "              LOC: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n"
        "             MISC: precision:   0.00%; recall:   0.00%; FB1:   0.00  0\n"
        "              ORG: precision:   0.00%; recall:   0.00%; FB1:   0.00  2\n"
        "              PER: precision: 100.00%; recall: 100.00%; FB1: 100.00  2"
    )
    assert result.macro_f1 == 25
    assert word_accuracy(gold, found) == result.accuracy == pytest.approx(500 / 9)


def test_entities_do_not_reach_over_sentences_and_schemes_mix():
    result = score([["B-PER"], ["I-PER"]], [["S-PER"], ["S-PER"]])
    assert (result.f1, result.total.gold, result.accuracy) == (100, 2, 0)
    assert score([], []).f1 == 0
    assert score([["O"]], [["O"]]).f1 == 0  # as conlleval


def test_word_accuracy_takes_any_tags():
    assert word_accuracy([["DT", "NN"], []], [["DT", "JJ"], []]) == 50


def test_missing_predictions_are_refused():
    with pytest.raises(ValueError, match="2 sentences but predictions for 1"):
        score([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="sentence 1 has 2 words but 1 predictions"):
        score([["O"], ["O", "O"]], [["O"], ["O"]])


def conlleval(gold, found):
    """(gold, found, correct) chunks, counted word by word as conlleval does."""

    def ends(before, now):
        (mark_before, type_before), (mark, kind) = before, now
        by_mark = (mark_before, mark) in {
            ("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")
        }  # fmt: skip
        return by_mark or (mark_before != "O" and type_before != kind)

    def starts(before, now):
        (mark_before, type_before), (mark, kind) = before, now
        by_mark = (mark_before, mark) in {
            ("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")
        }  # fmt: skip
        return by_mark or (mark != "O" and type_before != kind)

    def part(tag):
        return tuple(tag.split("-", 1)) if "-" in tag else (tag, "")

    total, guessed, right = 0, 0, 0
    before, before_found, inside = ("O", ""), ("O", ""), False
    flat = [pair for ours, theirs in zip(gold, found, strict=True) for pair in [*zip(ours, theirs, strict=True), "OO"]]
    for ours, theirs in flat:
        now, now_found = part(ours), part(theirs)
        if inside:
            over, over_found = ends(before, now), ends(before_found, now_found)
            if over and over_found and before[1] == before_found[1]:
                inside, right = False, right + 1
            elif over != over_found or now[1] != now_found[1]:
                inside = False
        begins, begins_found = starts(before, now), starts(before_found, now_found)
        inside = inside or (begins and begins_found and now[1] == now_found[1])
        total, guessed = total + begins, guessed + begins_found
        before, before_found = now, now_found
    return total, guessed, right


def test_counts_equal_conlleval_on_random_tags():
    rng = random.Random(0)
    choices = ["O", "O", "B-A", "I-A", "I-A", "B-B", "I-B", "B-c-d", "I-c-d"]
    for _ in range(300):
        gold = [[rng.choice(choices) for _ in range(rng.randint(0, 12))] for _ in range(5)]
        found = [[tag if rng.random() < 0.7 else rng.choice(choices) for tag in sentence] for sentence in gold]
        total = score(gold, found).total
        assert (total.gold, total.predicted, total.correct) == conlleval(gold, found)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("ner/wnut17/emerging.test.annotated", "wnut17"),
        ("ner/germeval2014/NER-de-dev.tsv", "germeval2014"),
        ("ner/germeval2014/NER-de-dev.tsv", "germeval2014_inner"),
        ("korean/klue_ner/klue-ner-v1.1_dev.tsv", "klue_ner"),
    ],
)
def test_real_tags(shared_data, name, columns):
    gold = [s.tags for s in read_columns(shared_data / name, FORMATS[columns])]
    for scheme in ("IOB1", "IOB2", "BIOES"):
        other = [convert(sentence, scheme) for sentence in gold]
        assert score(gold, other).f1 == 100
        assert scheme == "BIOES" or score(gold, other).total.correct == conlleval(gold, other)[2]
    assert [convert(sentence, "IOB2") for sentence in gold] == [list(sentence) for sentence in gold]
