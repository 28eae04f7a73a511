"""Scores against hand-counted cases and the published figures of published predictions."""

import json

import pytest

from bert_jax.data.squad import read_questions
from bert_jax.tasks.squad_score import normalise_korquad, normalise_squad, score


def dataset(answers, version="1.1"):
    """id -> accepted texts, in SQuAD's layout."""
    qas = [
        {"id": id, "question": "?", "answers": [{"text": text, "answer_start": 0} for text in texts]}
        for id, texts in answers.items()
    ]
    return {"version": version, "data": [{"title": "", "paragraphs": [{"context": "", "qas": qas}]}]}


def test_normalisation():
    assert normalise_squad("The  cat's, an\tA-team (the) theme a") == "cats ateam theme"
    assert normalise_korquad("The 《한글》은 'a.b' ‘ㄱ’ (X)\n“끝”") == "the 한글 은 ab ㄱ x “끝”"


def test_version_1():
    gold = {"1": ["the cat sat"], "2": ["x", "big dog"], "3": ["z"], "4": ["w"]}
    figures = score(dataset(gold), {"1": "Cat sat!", "2": "a big red dog", "3": "y", "9": "other"})
    # 2: 2 words of 3 found are right, 2 of 2 accepted are found: 2 · 2/3 · 1 / (2/3 + 1) = 0.8
    assert figures == {"exact_match": 25.0, "f1": 100.0 * (1 + 0.8) / 4, "total": 4, "missing": 1}


def test_version_1_repeated_words_count_as_often_as_they_occur():
    figures = score(dataset({"1": ["go go stop"]}), {"1": "go go go"})
    assert figures["f1"] == pytest.approx(100 * 2 / 3)


def test_an_answer_of_which_nothing_is_left():
    """In 1.1 "" equals it but shares no word with it; in 2.0 it is no answer at all."""
    assert score(dataset({"1": ["The"]}), {"1": "a"})["f1"] == 0
    assert score(dataset({"1": ["The"]}), {"1": "a"})["exact_match"] == 100
    figures = score(dataset({"1": ["The"]}, "v2.0"), {"1": "a"})
    assert figures["exact_match"] == figures["f1"] == figures["HasAns_f1"] == 100
    assert "NoAns_f1" not in figures


def test_version_2_is_recognised_by_a_question_without_answer():
    gold = {"1": ["red fox"], "2": [], "3": [], "4": ["x"]}
    figures = score(dataset(gold), {"1": "fox", "2": "", "3": "fox"})
    assert figures == {
        "exact_match": 25.0,
        "f1": 100 * (2 / 3 + 1) / 4,
        "total": 4,
        "HasAns_exact": 0.0,
        "HasAns_f1": 100 * (2 / 3) / 2,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
        "missing": 1,
    }


def test_null_odds():
    """Answering nothing is right for 2, 4 and 5. By rising odds, 1 wins 1, 2 loses 1, 3 wins 2/3, 4 (answered "")
    changes nothing, 5 loses 1: the best is 4 of 5, after the first."""
    gold = {"1": ["a fox"], "2": [], "3": ["red fox"], "4": [], "5": []}
    predictions = {"1": "fox", "2": "x", "3": "fox", "4": "", "5": "y"}
    odds = {"5": 2.0, "1": -4.5, "2": -2.5, "3": -1, "4": 0.5}
    figures = score(dataset(gold), predictions, odds)
    assert figures["best_exact"] == figures["best_f1"] == 100 * 4 / 5
    assert figures["best_exact_thresh"] == figures["best_f1_thresh"] == -4.5
    assert figures["exact_match"] == 100 * 2 / 5
    assert score(dataset(gold), predictions, odds, threshold=-4.5)["f1"] == figures["best_f1"]
    only_5_silent = score(dataset(gold), predictions, odds, threshold=1.0)
    assert only_5_silent["f1"] == pytest.approx(100 * (1 + 0 + 2 / 3 + 1 + 1) / 5)


def test_korquad_counts_characters():
    gold = dataset({"1": ["대한민국의 수도"], "2": ["서울"]}, "KorQuAD_v1.0_dev")
    predictions = {"1": "대한민국", "2": "서울은"}
    figures = score(gold, predictions)
    # 1: 4 of 4 found, 4 of 7 accepted: 8/11; 2: 2 of 3, 2 of 2: 4/5
    assert figures["f1"] == pytest.approx(100 * (8 / 11 + 4 / 5) / 2, abs=1e-12)
    assert figures["exact_match"] == 0
    assert score(gold, predictions, rules="squad")["f1"] == 0
    assert score(dataset({"1": ["《수도》"]}), {"1": "수도"}, rules="korquad")["exact_match"] == 100


def test_files_and_questions_score_alike(tmp_path):
    content = dataset({"1": ["red fox"], "2": []})
    (tmp_path / "set.json").write_text(json.dumps(content))
    (tmp_path / "predictions.json").write_text('{"1": "fox", "2": ""}')
    (tmp_path / "odds.json").write_text('{"1": 0, "2": 1.5}')
    figures = score(tmp_path / "set.json", tmp_path / "predictions.json", tmp_path / "odds.json")
    assert figures["best_exact"] == 50.0 and figures["best_f1_thresh"] == 0
    predictions, odds = {"1": "fox", "2": ""}, {"1": 0.0, "2": 1.5}
    assert score(content, predictions, odds) == figures
    assert score(read_questions(content), predictions, odds) == figures


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((dataset({}), {}), {}, "has no questions"),
        ((dataset({"1": ["a"]}), {}), {"threshold": 1.0}, "no null_odds"),
        ((dataset({"1": ["a"]}), {}), {"rules": "x"}, "choose one of squad, korquad"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        score(*arguments, **options)


def test_questions_without_labels_cannot_be_scored():
    content = dataset({"1": ["a"]})
    del content["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    with pytest.raises(ValueError, match=r"1 questions have no answers to compare with, first .*question 0"):
        score(content, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"1": null}', "'1' has NoneType"), ("[]", "list is no object of predictions"), ("{", "is not JSON")],
)
def test_bad_files_of_predictions(tmp_path, text, message):
    file = tmp_path / "predictions.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        score(dataset({"1": ["a"]}), file)
    assert str(file) in str(error.value)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no file"):
        score(dataset({"1": ["a"]}), tmp_path / "none.json")


def test_published_predictions_of_1_1(shared_data):
    folder = shared_data / "squad"
    figures = score(folder / "dev-v1.1-subset.json", folder / "predictions-v1.1-bert-ensemble.json")
    assert figures == {"exact_match": 86.3573883161512, "f1": 92.74727842141256, "total": 2910, "missing": 0}


def test_published_predictions_of_2_0(shared_data):
    folder = shared_data / "squad"
    figures = score(folder / "dev-v2.0-half.json", folder / "predictions-v2.0-bert-single.json")
    expected = {
        "exact_match": 78.9733,
        "f1": 81.8264,
        "HasAns_exact": 75.3952,
        "HasAns_f1": 81.3542,
        "NoAns_exact": 82.2601,
        "NoAns_f1": 82.2601,
    }
    assert {key: round(figures[key], 4) for key in expected} == expected
    assert (figures["total"], figures["HasAns_total"], figures["NoAns_total"]) == (6_078, 2_910, 3_168)
