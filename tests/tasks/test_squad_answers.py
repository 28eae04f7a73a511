"""From logits to answers: hand-made windows, a plain walk over all pairs, thresholds, and gold spans of real sets."""

import itertools
import json
import math

import numpy as np
import pytest

from bert_jax.data.squad import WindowSettings, make_question, make_windows, read_questions
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.vocabulary import learn_wordpiece
from bert_jax.data.wordpiece import WordPiece
from bert_jax.tasks.squad_answers import (
    NO_CANDIDATE_ODDS,
    Answers,
    AnswerSettings,
    Candidate,
    find_answers,
    null_odds,
    predictions,
    restore_text,
    tune_threshold,
    write_answers,
)
from bert_jax.tasks.squad_score import score

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = WordPiece([*SPECIALS, *"abcdefghijklmnopqrstuvwxyz", "?"], lowercase=True)


def logits(windows, *peaks):
    """Zeros but (window, column, value)."""
    arrays = [np.zeros(len(window.sequence.ids), np.float32) for window in windows]
    for window, column, value in peaks:
        arrays[window][column] = value
    return arrays


def one_window(context="a B  c d"):
    """[CLS] q [SEP] a b c d [SEP]"""
    questions = [make_question("1", "q", context)]
    return questions, make_windows(questions, LETTERS)


def test_the_best_span_is_cut_from_the_text():
    questions, windows = one_window()
    (found,) = find_answers(questions, windows, logits(windows, (0, 4, 3.0)), logits(windows, (0, 5, 2.0)))
    assert found.text == found.choose() == "B  c"
    assert found.null_odds is None
    assert found.candidates[0][0] == "B  c" and found.candidates[0][2:] == (3.0, 2.0, (2, 6))
    # Spans of four tokens: the peaks' own, 2 more from the start, 2 more to the end, 5 without either.
    total = math.exp(5) + 2 * math.exp(3) + 2 * math.exp(2) + 5
    assert [c.probability for c in found.candidates[:2]] == pytest.approx([math.exp(5) / total, math.exp(3) / total])
    assert len(found.candidates) == 10 and sum(c.probability for c in found.candidates) == pytest.approx(1)


def test_pairs_out_of_order_too_long_or_outside_the_context_are_left_out():
    questions, windows = one_window()
    start = logits(windows, (0, 1, 9.0), (0, 6, 5.0), (0, 3, 4.5))  # 1: the question; 6: d
    end = logits(windows, (0, 7, 9.0), (0, 4, 5.0), (0, 6, 4.0))  # 7: [SEP]; 4: b
    assert predictions(find_answers(questions, windows, start, end)) == {"1": "a B"}
    settings = AnswerSettings(max_answer_length=1)
    assert predictions(find_answers(questions, windows, start, end, settings)) == {"1": "d"}
    (found,) = find_answers(questions, windows, start, end, settings)
    assert [c.text for c in found.candidates] == ["d", "B", "a", "c"]


def test_only_starts_of_maximum_context_count():
    questions = [make_question("1", "q", "a b c d e f g")]
    windows = make_windows(questions, LETTERS, WindowSettings(max_seq_length=8, doc_stride=3, max_query_length=2))
    assert [w.max_context.tolist() for w in windows] == [[True] * 4, [False, True, True, True]]
    # d is the last of the first window and the first of the second; g is in the second only.
    start = logits(windows, (0, 6, 1.0), (1, 3, 9.0))
    end = logits(windows, (0, 6, 1.0), (1, 3, 9.0), (1, 6, 5.0))
    assert predictions(find_answers(questions, windows, start, end)) == {"1": "e f g"}


def test_a_text_is_listed_once_with_its_best_score():
    questions, windows = one_window("a b a b")
    (found,) = find_answers(questions, windows, logits(windows, (0, 5, 1.0)), logits(windows, (0, 6, 1.0)))
    texts = [c.text for c in found.candidates]
    assert texts[0] == "a b" and found.candidates[0].start_logit == 1.0
    assert sorted(texts) == sorted({"a b", "a", "b", "a b a", "a b a b", "b a", "b a b"})


def test_null_score_is_the_least_over_windows():
    questions = [make_question("1", "q", "a b c d e f g")]
    windows = make_windows(questions, LETTERS, WindowSettings(max_seq_length=8, doc_stride=3, max_query_length=2))
    start = logits(windows, (0, 0, 4.0), (1, 0, 1.5), (1, 4, 3.0))
    end = logits(windows, (0, 0, 0.5), (1, 0, 1.0), (1, 4, 2.0))
    (found,) = find_answers(questions, windows, start, end, AnswerSettings(unanswerable=True))
    assert found.text == "e" and found.null_odds == 1.5 + 1.0 - 3.0 - 2.0
    assert found.choose() == "e" and found.choose(-2.5) == "e" and found.choose(-2.6) == ""
    null = [(i, c) for i, c in enumerate(found.candidates) if not c.text]
    assert [(i, c[2:]) for i, c in null] == [(3, (1.5, 1.0, None))]  # after e (5) and two spans that start at it (3)


def test_the_null_answer_is_listed_even_behind_a_full_list():
    questions, windows = one_window()
    start = logits(windows, *((0, column, 1.0) for column in (3, 4, 5)))
    end = logits(windows, *((0, column, 1.0) for column in (4, 5, 6)))
    (found,) = find_answers(questions, windows, start, end, AnswerSettings(n_best_size=3, unanswerable=True))
    assert [c.text for c in found.candidates] == ["a B", "a B  c", "a B  c d", ""]
    (found,) = find_answers(questions, windows, start, end, AnswerSettings(n_best_size=3))
    assert len(found.candidates) == 3 and found.candidates[-1].text


@pytest.mark.parametrize("unanswerable", [False, True])
def test_no_candidate_is_an_empty_answer(unanswerable, tmp_path):
    """All of the two best starts are behind the two best ends; an empty context; no window at all."""
    questions = [make_question(str(i), "q", "a" if i == 0 else " ") for i in range(3)]
    windows = make_windows(questions[:2], LETTERS)
    start = logits(windows, (0, 0, 5.0), (0, 1, 5.0), (1, 0, -2.0))
    settings = AnswerSettings(n_best_size=2, unanswerable=unanswerable)
    found = find_answers(questions, windows, start, logits(windows), settings)
    assert predictions(found) == {"0": "", "1": "", "2": ""}
    assert [a.candidates[0].probability for a in found] == [1.0] * 3
    assert [a.null_odds for a in found] == [NO_CANDIDATE_ODDS if unanswerable else None] * 3
    write_answers(tmp_path, found)
    assert set(json.loads((tmp_path / "predictions.json").read_text()).values()) == {""}


def test_padding_and_missing_logits():
    questions, windows = one_window()
    start, end = logits(windows, (0, 4, 3.0)), logits(windows, (0, 5, 2.0))
    padded = [np.pad(np.stack(a), ((0, 1), (0, 50)), constant_values=9.0) for a in (start, end)]
    assert find_answers(questions, windows, padded[0], padded[1]) == find_answers(questions, windows, start, end)
    with pytest.raises(ValueError, match="window 0 of '1' has 8 tokens but 5 logits"):
        find_answers(questions, windows, [start[0][:5]], end)
    with pytest.raises(ValueError, match="8 tokens but 0 logits"):
        find_answers(questions, windows, start, [])
    end[0][0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        find_answers(questions, windows, start, end)
    with pytest.raises(ValueError, match="n_best_size is 0"):
        AnswerSettings(n_best_size=0)


def slow_answers(question, windows, starts, ends, settings):
    """`run_squad.py`'s rules over plain lists: [(text, start logit, end logit)], best first, and the null odds."""
    found, null = [], (math.inf, math.inf)
    for window, start, end in zip(windows, starts, ends, strict=True):
        best = [sorted(range(len(x)), key=lambda i: -x[i])[: settings.n_best_size] for x in (start, end)]
        if start[0] + end[0] < sum(null):
            null = (start[0], end[0])
        for s, e in itertools.product(*best):
            i, j = s - window.first_column, e - window.first_column
            inside = 0 <= i < len(window.offsets) and 0 <= j < len(window.offsets)
            if inside and window.max_context[i] and i <= j < i + settings.max_answer_length:
                text = question.context[window.offsets[i][0] : window.offsets[j][1]]
                found.append((text, start[s], end[e]))
    ranked = sorted([*found, ("", *null)], key=lambda f: sum(f[1:]), reverse=True)
    listed = []
    for entry in ranked:
        if len(listed) < settings.n_best_size and entry[0] not in [f[0] for f in listed]:
            listed.append(entry)
    if "" not in [f[0] for f in listed]:
        listed.append(("", *null))
    best = next(f for f in listed if f[0])
    return listed, null[0] + null[1] - best[1] - best[2]


@pytest.mark.parametrize("seed", range(8))
def test_random_logits_agree_with_a_plain_walk(seed):
    rng = np.random.default_rng(seed)
    questions = [
        make_question(str(i), "q ?", " ".join(rng.choice(list("abcdef"), rng.integers(3, 60)))) for i in range(5)
    ]
    windows = make_windows(questions, LETTERS, WindowSettings(max_seq_length=25, doc_stride=9, max_query_length=4))
    # Halves, so that ties occur and sums are exact.
    starts = [rng.integers(-9, 9, len(w.sequence.ids)).astype(np.float32) / 2 for w in windows]
    ends = [rng.integers(-9, 9, len(w.sequence.ids)).astype(np.float32) / 2 for w in windows]
    settings = AnswerSettings(n_best_size=20, max_answer_length=6, unanswerable=True)
    for index, found in enumerate(find_answers(questions, windows, starts, ends, settings)):
        numbers = [n for n, window in enumerate(windows) if window.question_index == index]
        window, start, end = ([part[n] for n in numbers] for part in (windows, starts, ends))
        listed, odds = slow_answers(questions[index], window, start, end, settings)
        assert [(c.text, c.start_logit, c.end_logit) for c in found.candidates] == listed
        assert found.null_odds == odds


@pytest.mark.parametrize(
    ("tokenized", "original", "restored"),
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1 , 000", "$1,000 (USD)", "1,000"),
        ("cafe", "Café,", "Café"),
        ("서 울", "서울", "서울"),  # not found in the decomposed text: all of it
        ("", "Some text", "Some text"),
        (" smith", "Steve Smith's", "Steve Smith's"),
        ("[UNK]", "☃ man", "☃ man"),
        ("a", "e\u0301 a", "e\u0301 a"),  # a stripped accent makes the counts differ
    ],
)
def test_restored_text(tokenized, original, restored):
    assert restore_text(tokenized, original, lowercase=True) == restored


def test_the_originals_text_is_an_option():
    tokenizer = WordPiece([*SPECIALS, "steve", "smith", "'", "s", "is", "##h", "here"], lowercase=True)
    questions = [make_question("1", "is", "Here\u202fis Steve\n Smith's sh\u200b here")]
    windows = make_windows(questions, tokenizer)
    # [CLS] is [SEP] here is steve smith ' s s ##h here [SEP]
    settings = AnswerSettings(original_text=True)

    def found(start, end, settings=settings):
        peaks = logits(windows, (0, start, 1.0)), logits(windows, (0, end, 1.0))
        return find_answers(questions, windows, peaks[0], peaks[1], settings, tokenizer)[0].text

    assert found(5, 6) == "Steve Smith"  # words joined by one space, as the original joins them
    assert found(5, 6, AnswerSettings()) == "Steve\n Smith"
    assert found(4, 4) == "is"
    assert found(9, 10) == "sh\u200b"  # counts differ: the whole word
    assert found(9, 10, AnswerSettings()) == "sh"
    with pytest.raises(ValueError, match="needs the tokenizer"):
        find_answers(questions, windows, logits(windows), logits(windows), settings)


def test_a_korean_answer_without_its_particle():
    tokenizer = WordPiece([*SPECIALS, "서울", "##은", "수도"], lowercase=False)
    questions = [make_question("1", "수도", "서울은 수도", [("서울", 0)])]
    windows = make_windows(questions, tokenizer)
    peaks = logits(windows, (0, windows[0].start_column, 1.0)), logits(windows, (0, windows[0].end_column, 1.0))
    assert predictions(find_answers(questions, windows, peaks[0], peaks[1])) == {"1": "서울"}


def made(id, text, odds):
    return Answers(id, (Candidate(text, 1.0, 0.0, 0.0),), text, odds)


def test_the_threshold_that_maximises_f1():
    """By rising odds: +1, −1, +1 at −2.5, then a loss. Answering all up to −2.5 gives 1 + 0 + 1 + 1 of 4."""
    questions = [
        make_question("1", "q", "x", [("x", 0)]),
        make_question("2", "q", "x", is_impossible=True),
        make_question("3", "q", "y z", [("y z", 0)]),
        make_question("4", "q", "x", is_impossible=True),
    ]
    answers = [made("4", "x", -1.0), made("3", "y z", -2.5), made("2", "x", -5.0), made("1", "x", -4.0)]
    threshold = tune_threshold(answers, questions)
    assert threshold == (-1.75, 75.0)  # halfway between -2.5, which is answered, and -1
    figures = score(questions, predictions(answers, threshold.threshold), null_odds(answers))
    assert figures["f1"] == 75.0
    # On answers before any threshold the official sweep finds the same.
    official = score(questions, {a.id: a.text for a in answers}, null_odds(answers))
    assert (official["best_f1"], official["best_f1_thresh"]) == (75.0, -2.5)


def test_a_threshold_never_splits_equal_odds_and_can_silence_all():
    questions = [
        make_question("1", "q", "x", [("x", 0)]),
        make_question("2", "q", "x", is_impossible=True),
        make_question("3", "q", "x", is_impossible=True),
    ]
    answers = [made("1", "x", -2.0), made("2", "x", -2.0), made("3", "x", 1.0)]
    threshold = tune_threshold(answers, questions)
    assert threshold.f1 == pytest.approx(100 * 2 / 3)
    assert score(questions, predictions(answers, threshold.threshold))["f1"] == pytest.approx(threshold.f1)
    assert predictions(answers, threshold.threshold) == {"1": "", "2": "", "3": ""}
    assert tune_threshold(answers[:1], questions[:1]).threshold == -1.0  # all are answered
    far = [made("1", "x", -2.0), made("2", "", 1e30)]  # the odds of a question without any candidate
    assert tune_threshold(far, questions[:2]).threshold == -1.0


def test_tuning_tries_what_brute_force_tries():
    rng = np.random.default_rng(0)
    questions, answers = [], []
    for i in range(60):
        impossible = bool(rng.random() < 0.5)
        questions.append(
            make_question(str(i), "q", "x y", [] if impossible else [("x y", 0)], is_impossible=impossible)
        )
        answers.append(made(str(i), str(rng.choice(["x y", "x", "z"])), float(rng.integers(-9, 9)) + 2 * impossible))
    threshold = tune_threshold(answers, questions)
    scores = {t: score(questions, predictions(answers, t))["f1"] for t in np.arange(-12.0, 14.0, 0.5)}
    assert threshold.f1 == pytest.approx(max(scores.values()))
    assert scores[threshold.threshold] == pytest.approx(threshold.f1)


def test_tuning_needs_the_odds_of_every_question():
    questions = [make_question("1", "q", "x", [("x", 0)]), make_question("2", "q", "x", is_impossible=True)]
    with pytest.raises(ValueError, match="1 of 2 questions have no null odds, first '2'"):
        tune_threshold([made("1", "x", 0.0)], questions)


def test_files(tmp_path):
    answers = [made("1", "서울", -1.0), made("2", "x", 3.0)]
    write_answers(tmp_path / "out", answers, threshold=0.0)
    read = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in (tmp_path / "out").iterdir()}
    assert read == {
        "predictions": {"1": "서울", "2": ""},
        "nbest_predictions": {
            "1": [{"text": "서울", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}],
            "2": [{"text": "x", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}],
        },
        "null_odds": {"1": -1.0, "2": 3.0},
    }


def test_files_are_all_written_or_none(tmp_path):
    write_answers(tmp_path, [made("1", "x", -1.0)])
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_answers(tmp_path, [made("1", "y", float("nan"))])  # null_odds.json is the last
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "vocabulary", "aligned_share"),
    [
        ("squad/dev-v1.1-subset.json", "bert-base-uncased-vocab.txt", 0.999),
        ("squad/xquad/xquad.en.json", "bert-base-uncased-vocab.txt", 0.999),
        ("squad/xquad/xquad.zh.json", "bert-base-chinese-vocab.txt", 1.0),
        ("squad/xquad/xquad.de.json", "bert-base-uncased-vocab.txt", 0.999),
        ("korean/korquad1/KorQuAD_v1.0_dev.json", None, 0.7),
    ],
)
def test_logits_at_the_gold_spans_give_exact_match_100(shared_data, name, vocabulary, aligned_share):
    """Wherever the answer begins and ends with a token; the others are rare but in Korean, where a learned piece may
    hold a particle."""
    questions = read_questions(shared_data / name)[:150]
    if vocabulary:
        tokenizer = load_tokenizer(shared_data / "vocab" / vocabulary)
    else:
        tokenizer = learn_wordpiece({q.context for q in questions}, 3_000, lowercase=False)
    windows = make_windows(questions, tokenizer)
    assert all(window.has_target for window in windows)
    here = [n for n, window in enumerate(windows) if window.start_column]
    start = logits(windows, *((n, windows[n].start_column, 1.0) for n in here))
    end = logits(windows, *((n, windows[n].end_column, 1.0) for n in here))
    found = predictions(find_answers(questions, windows, start, end, AnswerSettings(max_answer_length=384)))
    aligned = {}
    for window in (windows[n] for n in here):
        question = questions[window.question_index]
        columns = np.array([window.start_column, window.end_column]) - window.first_column
        if (window.offsets[columns[0], 0], window.offsets[columns[1], 1]) == question.answers[0].span:
            aligned[question.id] = question
    assert len(aligned) >= aligned_share * len(questions)
    assert all(found[id] == question.answers[0].text.strip() for id, question in aligned.items())
    assert score(list(aligned.values()), found)["exact_match"] == 100
