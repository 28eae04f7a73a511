"""Answers: exact places in the context, windows, "no answer", the logits of transformers, alone and in company."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import load
from bert_jax.data.squad import WindowSettings, make_question, make_windows
from bert_jax.predict import Answer, Predictor
from bert_jax.tasks.squad_answers import AnswerSettings, find_answers
from tests.predict.small_models import of_peer, plain_logits, save_peer, with_head

RUN = {"max_seq_length": 48, "doc_stride": 16, "max_query_length": 8, "n_best_size": 20, "max_answer_length": 6}
QUESTION = "the mat on"
CONTEXTS = ["The  cat sat, on\tMats.", "the cat sat on mats . " * 20, "", "Mats", "cat the on . " * 9]


@pytest.fixture(scope="module")
def model() -> Predictor:
    return with_head("qa_head", 2, run=RUN | {"version": "1.1"})


def by_hand(model: Predictor, context: str, **options: Any) -> Any:
    """The original's windows and n-best list on the logits of the plain module, window by window."""
    windows = make_windows([make_question("0", QUESTION, context)], model.tokenizer, WindowSettings(48, 16, 8))
    rows = []
    for window in windows:
        pieces = [model.tokenizer.pieces[i] for i in window.sequence.ids.tolist()]
        middle = pieces.index("[SEP]")
        texts = (" ".join(part).replace(" ##", "") for part in (pieces[1:middle], pieces[middle + 1 : -1]))
        rows.append(plain_logits(model, "qa_head", tuple(texts)))
    settings = AnswerSettings(20, 6, **options)
    question = make_question("0", QUESTION, context)
    return find_answers([question], windows, [row[:, 0] for row in rows], [row[:, 1] for row in rows], settings)[0]


@pytest.mark.parametrize("context", [CONTEXTS[0], CONTEXTS[4]])
def test_answers_are_those_of_the_plain_model(model: Predictor, context: str) -> None:
    found = model.answer(question=QUESTION, context=context, top_k=20)
    expected = by_hand(model, context).candidates
    assert [answer.text for answer in found] == [candidate.text for candidate in expected]
    np.testing.assert_allclose(
        [answer.probability for answer in found], [candidate.probability for candidate in expected], atol=1e-5
    )
    assert len(found) > 3 and all(answer.text for answer in found)


def test_answers_lie_where_they_say(model: Predictor) -> None:
    for context in CONTEXTS:
        for answer in model.answer(question=QUESTION, context=context, top_k=20):
            assert context[answer.start : answer.end] == answer.text
    assert "Mats" in [answer.text for answer in model.answer(question=QUESTION, context=CONTEXTS[0], top_k=20)]


def test_one_or_many(model: Predictor) -> None:
    alone = [model.answer(question=QUESTION, context=context) for context in CONTEXTS]
    together = model.answer(question=QUESTION, context=CONTEXTS)
    assert all(isinstance(answer, Answer) for answer in alone)
    assert [answer.text for answer in alone] == [answer.text for answer in together]
    np.testing.assert_allclose([a.probability for a in alone], [a.probability for a in together], atol=1e-5)
    assert (alone[2].text, alone[2].start, alone[2].end, alone[2].probability) == ("", 0, 0, 1.0)
    both = model.answer(question=[QUESTION, "cat"], context=CONTEXTS[0])
    assert both[0].text == alone[0].text and len(both) == 2
    assert model.answer(question=[], context=[]) == []
    assert isinstance(model.answer(question=[QUESTION], context=CONTEXTS[:1])[0], Answer)


@pytest.mark.parametrize("odds_below", [True, False])
def test_no_answer_competes_against_the_threshold_of_the_checkpoint(odds_below: bool) -> None:
    probe = with_head("qa_head", 2, run=RUN | {"version": "2.0"})
    found = by_hand(probe, CONTEXTS[0], unanswerable=True)
    threshold = found.null_odds + (0.01 if odds_below else -0.01)
    model = with_head("qa_head", 2, run=RUN | {"version": "2.0"}, figures={"null_threshold": threshold})
    answers = model.answer(question=QUESTION, context=CONTEXTS[0], top_k=20)
    assert answers[0].text == (found.text if odds_below else "")
    assert "" in [answer.text for answer in answers]
    assert "" not in [
        a.text for a in model.answer(question=QUESTION, context=CONTEXTS[0], top_k=20, unanswerable=False)
    ]


def test_nothing_is_compiled_after_the_first_of_each_shape(model: Predictor) -> None:
    for context in ("the " * 10, "the " * 35, "the " * 60, "the " * 800):
        model.answer(question="cat", context=context)
    warm = model.num_compiled
    for n in range(0, 300, 7):
        model.answer(question="cat " * (n % 7 + 1), context="the " * n)
    assert model.num_compiled == warm


def test_finds_what_the_logits_of_transformers_say(tmp_path: Path) -> None:
    peer = save_peer(tmp_path, "BertForQuestionAnswering")
    context = "the cat sat on the mats ."
    output = of_peer(peer, (QUESTION, context))
    start, end = output.start_logits[0].numpy(), output.end_logits[0].numpy()
    first = 5  # [CLS] the mat on [SEP]
    scores = {(i, j): start[i] + end[j] for i in range(first, len(start) - 1) for j in range(i, len(start) - 1)}
    best = max(scores, key=lambda pair: scores[pair])
    offsets = load(tmp_path).tokenizer.encode(context).offsets
    (answer, *_) = load(tmp_path).answer(question=QUESTION, context=context, top_k=2)
    assert (answer.start, answer.end) == (offsets[best[0] - first][0], offsets[best[1] - first][1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.answer(question="cat " * 9, context="the"),
            "question 0 has 9 tokens, max_query_length is 8: 'cat",
        ),
        (lambda m: m.answer(question=["a", "b"], context=["c"]), "2 questions but 1 contexts; give as many, or one"),
        (lambda m: m.answer(question="a", context="b", top_k=0), "top_k=0 must be at least 1"),
    ],
)
def test_errors_are_one_line(model: Predictor, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)


def test_a_long_question_is_cut_if_asked(model: Predictor) -> None:
    assert model.answer(question="cat " * 9, context="the cat", truncate=True) == model.answer(
        question="cat " * 8, context="the cat"
    )
