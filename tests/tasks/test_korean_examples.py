"""What configs/korean.py documents: the examples go through models of both kinds of vocabulary."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import bert_jax
from bert_jax.data.choice_data import open_choice_data
from bert_jax.data.squad import read_questions
from bert_jax.data.text_data import open_text_data
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.vocabulary import learn_sentencepiece, learn_wordpiece
from bert_jax.tasks import TASKS, fine_tuning
from bert_jax.training.evaluate import predict_workdir
from bert_jax.training.settings import read_config
from configs import korean

pytestmark = pytest.mark.end_to_end
SUBJECTS = ("이 영화", "그 영화", "이 작품", "정말", "배우는 좋은데", "음악이")
SENTIMENT = {"1": ("재미 있네요", "최고네요", "감동이네요"), "0": ("재미 없네요", "최악이네요", "지루하네요")}
PREMISES = ("나 출근했어", "나 지금 회사야", "오늘 회사에 출근했어", "아침에 출근했어")
HYPOTHESES = {
    "entailment": ("난 회사에 다녀", "난 직장인이야"),
    "contradiction": ("난 백수야", "난 직장이 없어"),
    "neutral": ("난 밥을 먹었어", "난 커피를 마셨어"),
}


def write_nsmc(folder: Path) -> list[str]:
    texts = [
        (f"{subject} {ending}", label)
        for subject in SUBJECTS
        for label, endings in SENTIMENT.items()
        for ending in endings
    ]
    lines = ["id\tdocument\tlabel", *(f"{i}\t{text}\t{label}" for i, (text, label) in enumerate(texts))]
    for name in ("ratings_train.txt", "ratings_test.txt"):
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "input").write_text("document\n이 영화 재미 없네요\n")
    return [text for text, _ in texts]


def write_klue_nli(folder: Path) -> list[str]:
    pairs = [
        {"guid": f"{label}-{i}", "premise": premise, "hypothesis": hypothesis, "gold_label": label}
        for i, premise in enumerate(PREMISES)
        for label, hypotheses in HYPOTHESES.items()
        for hypothesis in hypotheses
    ]
    for split in ("train", "dev"):
        (folder / f"klue-nli-v1.1_{split}.json").write_text(json.dumps(pairs, ensure_ascii=False))
    (folder / "input").write_text('[{"premise": "나 출근했어", "hypothesis": "난 백수야"}]')
    return [pair[name] for pair in pairs for name in ("premise", "hypothesis")]


def tiny_config(task: str, folder: Path, tokenizer: Tokenizer, **changes: Any) -> Any:
    tokenizer.save(folder / "tokenizer")
    config: Any = korean.get_config(f"task={task},size=L1_H32_A2")
    config.model.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    config.update({"data_dir": str(folder), "tokenizer": str(folder / "tokenizer"), "train_epochs": None})
    config.update({"batch_size": 16, "max_seq_length": 32, "train_steps": 120})
    config.optimizer.update({"learning_rate": 2e-3, "bias_correction": True})
    config.mesh.data = 1
    config.update(changes)
    return config


@pytest.mark.parametrize(
    ("task", "write", "kind", "expected"),
    [
        ("nsmc", write_nsmc, "wordpiece", ("0", "부정")),
        ("klue_nli", write_klue_nli, "sentencepiece", ("contradiction", "거짓")),
    ],
)
def test_sentences_of_the_documentation(task: str, write: Any, kind: str, expected: Any, tmp_path: Path) -> None:
    texts = write(tmp_path)
    if kind == "wordpiece":
        tokenizer: Tokenizer = learn_wordpiece(texts, 120, lowercase=False, min_frequency=1)
    else:
        tokenizer = learn_sentencepiece(texts, 80)
    result = bert_jax.train(tiny_config(task, tmp_path, tokenizer), tmp_path / "run")
    assert result["accuracy"] > 0.9
    assert predict_workdir(tmp_path / "run", tmp_path / "input", tmp_path / "out.tsv") == 1
    header, line = (row.split("\t") for row in (tmp_path / "out.tsv").read_text().splitlines())
    assert line[:2] == ["0", expected[0]] and (header[-1], line[-1]) == ("name", expected[1])


def test_the_question_of_the_documentation_is_read(tmp_path: Path) -> None:
    path = tmp_path / "question.json"
    path.write_text(
        '{"data": [{"paragraphs": [{"context": "한글은 1443년 만들어졌다.", "qas": [{"id": "1",'
        ' "question": "한글이 창제된 연도는?"}]}]}]}'
    )
    (question,) = read_questions(path, Problems())
    assert (question.question, question.context) == ("한글이 창제된 연도는?", "한글은 1443년 만들어졌다.")
    text = (korean.__doc__ or "").replace("\\\n        ", "")
    assert path.read_text().replace(" ", "") in text.replace(" ", "").replace("\n", "")


@pytest.mark.parametrize("task", ["kobest_boolq", "kobest_wic", "kobest_sentineg", "kornli", "korsts"])
def test_files_to_predict_need_no_labels(task: str, tmp_path: Path) -> None:
    source = open_text_data("korean", data_dir=str(tmp_path), labels=None, name=task)
    path = tmp_path / "input.tsv"
    path.write_text("sentence1\tsentence2\tSENTENCE1\tSENTENCE2\tQuestion\tText\na\tb\ta\tb\ta\tb\n")
    (row,) = source.read_file(path, Problems())
    assert row.label is None and row.row_id in ("", "0")


def test_choices_to_predict_need_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "input.tsv"
    path.write_text("sentence\tquestion\t1\t2\n비가 왔다.\t결과\t젖었다.\t말랐다.\n")
    source = open_choice_data("korean", data_dir="", start="context", name="kobest_copa")
    (row,) = source.read_file(path, Problems())
    assert (row.context, row.endings, row.label) == ("비가 왔다. 그래서", ("젖었다.", "말랐다."), None)
    path.write_text("context\tchoice1\tchoice2\tchoice3\tchoice4\na\tb\tc\td\te\n")
    source = open_choice_data("korean", data_dir="", start="context", name="kobest_hellaswag")
    (row,) = source.read_file(path, Problems())
    assert (row.context, row.endings, row.label) == ("a", ("b", "c", "d", "e"), None)


def test_an_uncased_vocabulary_says_that_hangul_is_taken_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tuning._say_once.cache_clear()
    texts = write_nsmc(tmp_path)
    for lowercase, said in ((False, 0), (True, 1)):
        tokenizer = learn_wordpiece(texts, 120, lowercase=lowercase, min_frequency=1)
        for _ in itertools.repeat(None, 2):
            _, task = read_config(tiny_config("nsmc", tmp_path, tokenizer))
            task.stream(4, 32, 1)
        assert capsys.readouterr().err.count("takes apart into Jamo") == said


def test_every_text_of_every_task_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hangul in the second sentence, in an ending, in a context and in words."""
    learn_wordpiece(["a b 가나다"], 40, lowercase=True, min_frequency=1).save(tmp_path / "tokenizer")
    (tmp_path / "pairs.tsv").write_text("one\ttwo\tlabel\na\t가\t0\nb\tb\t1\n")
    item = {"ctx": "a", "endings": ["b", "나"], "label": 0}
    (tmp_path / "endings.jsonl").write_text(json.dumps(item) + "\n")
    question = {"id": "1", "question": "a", "answers": [{"text": "다", "answer_start": 0}]}
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "다", "qas": [question]}]}]}))
    (tmp_path / "words.txt").write_text("a O\n가 O\n")
    pairs = {"source": "table", "train": "pairs.tsv", "text_a": "one", "text_b": "two"}
    for name, options in {
        "classification": {"data": pairs},
        "choice": {"data": {"source": "hellaswag", "train": "endings.jsonl"}},
        "squad": {"train": "squad.json", "version": "1.1", "max_query_length": 8},
        "tagging": {"train": "words.txt"},
    }.items():
        fine_tuning._say_once.cache_clear()
        model = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        shared = {"data_dir": str(tmp_path), "tokenizer": str(tmp_path / "tokenizer"), "model": model}
        TASKS[name](seed=0, **shared, **options).stream(1, 32, 1)
        assert capsys.readouterr().err.count("takes apart into Jamo") == 1, name
