"""Question answering: the loss on packed rows, a run from end to end with its files, threshold, bad data, parity."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.data.packing import Examples, Placement, Shape, assemble, packed_batches
from bert_jax.data.squad import (
    CONTEXT_EMPTY,
    MOVED,
    NO_TARGET,
    NOT_FOUND,
    QUESTION_CUT,
    WindowSettings,
    make_question,
    make_windows,
)
from bert_jax.data.wordpiece import WordPiece
from bert_jax.tasks import TASKS
from bert_jax.tasks.squad import UNLABELLED, mistakes, span_figures, window_examples
from bert_jax.tasks.squad_answers import Answers, Candidate
from bert_jax.tasks.squad_score import score
from bert_jax.training.checkpoint import read_params
from bert_jax.training.evaluate import evaluate_workdir, predict_workdir
from bert_jax.training.metric_log import read_metrics
from bert_jax.training.settings import plan, read_config
from configs import squad as squad_recipe
from tests.tiny_model import QUIET, TINY

WORDS = [f"w{chr(97 + i // 10)}{chr(97 + i % 10)}" for i in range(40)]
TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "?", "##x"], lowercase=True)
MODEL = TINY | {"dtype": "float32"}


def qa(number: int | str, question: str, answer: str | None = None, start: int = 0, **fields: Any) -> dict[str, Any]:
    answers = [] if answer is None else [{"text": answer, "answer_start": start}]
    return {"id": str(number), "question": question, "answers": answers, **fields}


def layout(*paragraphs: tuple[str, list[dict[str, Any]]], version: str = "v2.0") -> dict[str, Any]:
    records = [{"context": context, "qas": qas} for context, qas in paragraphs]
    return {"version": version, "data": [{"title": "T", "paragraphs": records}]}


def questions_of(count: int, *, impossible: bool) -> dict[str, Any]:
    """The answer is the two words after the word asked for; every third one asks for a word that is not there."""
    rng = np.random.default_rng(0)
    paragraphs = []
    for number in range(count):
        words = [WORDS[i] for i in rng.permutation(38)[:11]]
        place = 1 + number % 8
        if impossible and number % 3 == 2:
            asked = qa(number, f"{WORDS[39]} ?", is_impossible=True)
        else:
            start = len(" ".join(words[: place + 1])) + 1
            asked = qa(number, f"{words[place]} ?", " ".join(words[place + 1 : place + 3]), start)
        paragraphs.append((" ".join(words), [asked]))
    return layout(*paragraphs, version="v2.0" if impossible else "1.1")


def save(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    TOKENIZER.save(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "task": "squad",
        "data_dir": str(folder),
        "tokenizer": str(folder / "tokenizer"),
        "model": MODEL | QUIET,
        "batch_size": 12,
        "max_seq_length": 32,
        "max_query_length": 8,
        "train_steps": 80,
        "warmup_ratio": 0.1,
        "optimizer": {"learning_rate": 3e-3},
        "log_every_steps": 10,
        "eval_every_steps": 1000,
        "mesh": {"data": 1},
    } | changes


def test_loss_by_hand() -> None:
    # Two sequences in the first row (columns 0-1 and 2-4, then padding), one in the second; the second has no answer.
    log = np.log
    start = [[log(3.0), 0.0, 0.0, log(2.0), 0.0, 50.0], [0.0, 0.0, 60.0, 60.0, 60.0, 60.0]]
    end = [[0.0, 0.0, log(6.0), 0.0, 0.0, 50.0], [0.0, log(4.0), 60.0, 60.0, 60.0, 60.0]]
    batch = {
        "sequence_ids": np.array([[1, 1, 2, 2, 2, 0], [1, 1, 0, 0, 0, 0]], np.int32),
        "example_weights": np.array([[1, 1, 0], [1, 0, 0]], np.float32),
        "has_target": np.array([[1, 1, 0], [0, 0, 0]], np.float32),
        "start_columns": np.array([[0, 3, 0], [0, 0, 0]], np.int32),
        "end_columns": np.array([[1, 4, 0], [0, 0, 0]], np.int32),
    }
    logits = jnp.asarray(np.stack([start, end], -1), jnp.float32)
    figures = span_figures(logits, jax.tree.map(jnp.asarray, batch))
    # First: starts 3 + 1, ends 1 + 1; second: starts 1 + 2 + 1, ends 6 + 1 + 1.
    expected = (log(4 / 3) + log(2) + log(4 / 2) + log(8 / 1)) / 2
    np.testing.assert_allclose(figures["loss"], (expected, 2.0), rtol=1e-6)
    np.testing.assert_allclose(figures["start_accuracy"], (2.0, 2.0))
    np.testing.assert_allclose(figures["end_accuracy"], (0.0, 2.0))  # of equal ends the first is taken
    gradient = jax.grad(lambda x: span_figures(x, jax.tree.map(jnp.asarray, batch))["loss"][0])(logits)
    assert np.isfinite(gradient).all()
    assert not gradient[0, 5].any() and not gradient[1].any()


def windows_of(count: int) -> list[Any]:
    """Windows of very different lengths."""
    rng = np.random.default_rng(1)
    questions = []
    for number in range(count):
        words = [WORDS[i] for i in rng.integers(0, 40, int(rng.integers(1, 45)))]
        answer = (words[len(words) // 2], len(" ".join(words[: len(words) // 2])) + 1)
        questions.append(make_question(str(number), "wab ?", " ".join(words), [answer] if number % 4 else []))
    return make_windows(questions, TOKENIZER, WindowSettings(32, 8, 4))


def one_a_row(examples: Examples) -> dict[str, np.ndarray]:
    count, zeros = len(examples), np.zeros(len(examples), np.int64)
    return assemble(
        examples, np.arange(count), Placement(np.arange(count), zeros, zeros, count), count, Shape(32, 1), 0
    )


def compiled(task: Any, params: Any) -> Any:
    def run(batch: dict[str, jax.Array]) -> Any:
        logits = task.forward(params, batch, None)
        return logits, task.figures(logits, batch)

    return lambda batch: jax.device_get(jax.jit(run)(jax.tree.map(jnp.asarray, batch)))


@pytest.mark.parametrize("variant", [{}, {"bilstm_size": 4, "concatenated": True}])
def test_packed_equals_alone(tokenizer: str, variant: dict[str, Any]) -> None:
    changes = {"attention_direction": "left_to_right"} if variant else {}
    task = TASKS["squad"](seed=0, tokenizer=tokenizer, model=MODEL | changes, **variant)
    params = jax.tree.map(lambda x: x * 5.0, jax.jit(task.init)(jax.random.key(0)))  # so that columns differ
    examples = window_examples(windows_of(16))
    run = compiled(task, params)
    alone, expected = run(one_a_row(examples))
    assert 0 < expected["loss"][1] < len(examples)
    sums = {name: np.zeros(2) for name in expected}
    most = 0
    for batch in packed_batches(examples, pad_id=0, max_seq_length=64, tokens_a_batch=64 * 4):
        logits, figures = run(batch)
        sums = {name: sums[name] + np.asarray(pair) for name, pair in figures.items()}
        for row, slot in np.argwhere(batch["example_weights"] > 0):
            own = logits[row][batch["sequence_ids"][row] == slot + 1]
            example = batch["example_indices"][row, slot]
            np.testing.assert_allclose(own, alone[example, : len(own)], rtol=0, atol=1e-5)
            most = max(most, int(slot))
    assert most > 0
    for name, pair in expected.items():
        np.testing.assert_allclose(sums[name], pair, rtol=1e-5)


def test_a_run_with_unanswerable_questions(tmp_path: Path, tokenizer: str) -> None:
    content = questions_of(12, impossible=True)
    save(tmp_path / "train-v2.0.json", content)
    dev = save(tmp_path / "dev-v2.0.json", content)
    workdir = tmp_path / "run"
    figures = bert_jax.train(config(tmp_path), workdir)
    lines = [line["loss"] for line in read_metrics(workdir) if "loss" in line]
    assert lines[-1] < 0.1 < 1.0 < lines[0]
    assert figures["f1"] == figures["exact_match"] == figures["best_f1"] == 100.0
    assert figures["HasAns_f1"] == figures["NoAns_f1"] == 100.0
    stored = read_params(workdir)[1]["figures"]
    assert stored["null_threshold"] == figures["null_threshold"]
    assert evaluate_workdir(workdir, "dev", best=True) == pytest.approx(figures, abs=1e-4)

    assert predict_workdir(workdir, dev, tmp_path / "answers") == 12
    assert {path.name for path in (tmp_path / "answers").iterdir()} == {
        "predictions.json",
        "nbest_predictions.json",
        "null_odds.json",
    }
    odds = json.loads((tmp_path / "answers" / "null_odds.json").read_text())
    answers = [qa for article in content["data"] for p in article["paragraphs"] for qa in p["qas"]]
    gold = {qa["id"]: qa["answers"][0]["text"] if qa["answers"] else "" for qa in answers}
    assert json.loads((tmp_path / "answers" / "predictions.json").read_text()) == gold
    assert {id for id, value in odds.items() if value > figures["null_threshold"]} == {
        id for id in gold if not gold[id]
    }
    assert score(dev, tmp_path / "answers" / "predictions.json")["f1"] == 100.0

    with pytest.raises(ValueError, match="is a file, but the output is several; give a folder"):
        predict_workdir(workdir, dev, dev)
    with pytest.raises(ValueError, match="no split 'test'; choose from train, dev"):
        evaluate_workdir(workdir, "test")


def test_version_1_and_a_file_without_answers(tmp_path: Path, tokenizer: str) -> None:
    content = questions_of(8, impossible=False)
    mine = save(tmp_path / "mine.json", content)
    options: dict[str, Any] = {"tokenizer": tokenizer, "model": MODEL, "version": "1.1", "max_query_length": 8}
    task = TASKS["squad"](seed=0, data_dir=str(tmp_path), train="mine.json", dev="mine.json", **options)
    assert task.stream(8, 32, 1).num_examples == 8
    dataset = task.evaluation("dev", 4, 32, 1).dataset
    assert dataset is not None
    logits = np.zeros((len(dataset.examples.ids), 2), np.float32)
    for name, side in (("start_columns", 0), ("end_columns", 1)):
        logits[dataset.examples.bounds[:-1] + dataset.examples.column_targets[name], side] = 1.0
    assert dataset.scores({"logits": logits}) == {"exact_match": 100.0, "f1": 100.0}

    for paragraph in content["data"][0]["paragraphs"]:
        for record in paragraph["qas"]:
            del record["answers"]
    unlabelled = save(tmp_path / "unlabelled.json", content)
    assert task.read_file is not None
    dataset = task.read_file(unlabelled, 32)
    assert dataset.scores({"logits": logits}) == {}
    dataset.write({"logits": logits}, tmp_path / "answers", {})
    names = ["nbest_predictions.json", "predictions.json"]
    assert sorted(path.name for path in (tmp_path / "answers").iterdir()) == names
    assert score(mine, tmp_path / "answers" / "predictions.json")["f1"] == 100.0


def outputs_for(dataset: Any, questions: dict[str, tuple[float, float]]) -> dict[str, np.ndarray]:
    """Logits with the given null and best scores for the one-window questions of a data set, in order."""
    logits = np.full((len(dataset.examples.ids), 2), -10.0, np.float32)
    for first, (null, best) in zip(dataset.examples.bounds[:-1], questions.values(), strict=True):
        logits[first] = null / 2
        logits[first + 4] = best / 2  # the first token of the context: after [CLS] q ? [SEP]
    return {"logits": logits}


def test_the_threshold_is_tuned_and_used(tmp_path: Path, tokenizer: str) -> None:
    context = "wab wac wad"
    answerable = [qa(n, "waa ?", "wab", 0) for n in "ab"]
    impossible = [qa(n, "waa ?", is_impossible=True) for n in "cd"]
    file = save(tmp_path / "dev-v2.0.json", layout((context, answerable + impossible)))
    task = TASKS["squad"](seed=0, data_dir=str(tmp_path), tokenizer=tokenizer, model=MODEL, max_query_length=8)
    dataset = task.evaluation("dev", 4, 32, 1).dataset
    assert dataset is not None
    # The null odds are -6, -4, -3, 1: at 0 the third is answered, wrongly; -4 must be answered, -3 not.
    outputs = outputs_for(dataset, {"a": (-3.0, 3.0), "b": (-2.0, 2.0), "c": (-1.5, 1.5), "d": (0.5, -0.5)})
    figures = dataset.scores(outputs)
    assert figures["null_threshold"] == pytest.approx(-3.5)
    assert (figures["f1"], figures["f1_at_0"], figures["exact_match_at_0"]) == (100.0, 75.0, 75.0)
    assert figures["best_f1"] == 100.0 and figures["best_f1_thresh"] == pytest.approx(-4.0)
    assert not {"total", "missing", "HasAns_total"} & set(figures)
    assert dataset.details(outputs) == {"mistakes": []} and dataset.num_items == 4  # at 0 "c" would be one
    for given, expected in (({}, ["wab", "wab", "wab", ""]), (figures, ["wab", "wab", "", ""])):
        dataset.write(outputs, tmp_path / "answers", given)
        texts = json.loads((tmp_path / "answers" / "predictions.json").read_text())
        assert [texts[id] for id in "abcd"] == expected
        assert score(file, texts)["f1"] == figures["f1" if given else "f1_at_0"]


def test_mistakes_are_of_the_answers_given() -> None:
    def found(name: str, share: float, odds: float) -> Answers:
        candidates = [Candidate("wab wac", share, 0.0, 0.0), Candidate("", 1 - share, 0.0, 0.0)]
        return Answers(name, tuple(sorted(candidates, key=lambda one: -one.probability)), "wab wac", odds)

    asked = [
        make_question("right", "right ?", "wab wac wad", [("wac wad", 4)]),  # one word of two is no mistake
        make_question("other", "other ?", "wab wac wad", [("wad", 8)]),
        make_question("nothing", "nothing ?", "wab wac wad", [("wab", 0)]),
        make_question("answered", "answered ?", "wab wac wad", [], is_impossible=True),
        make_question("refused", "refused ?", "wab wac wad", [], is_impossible=True),
    ]
    odds = {"right": -2.0, "other": -2.0, "nothing": 2.0, "answered": -1.0, "refused": 1.0}
    shares = {"right": 0.9, "other": 0.6, "nothing": 0.2, "answered": 0.4, "refused": 0.3}
    answers = [found(name, shares[name], odds[name]) for name in odds]
    rows = [tuple(row.values()) for row in mistakes(asked, answers)]
    assert rows == [
        ("nothing ?", "wab", "no answer", 0.8),
        ("other ?", "wad", "wab wac", 0.6),
        ("answered ?", "no answer", "wab wac", 0.4),
    ]
    assert [row["text"] for row in mistakes(asked, answers, -1.5)] == ["nothing ?", "other ?"]


def test_bad_data_is_counted_and_loses_no_question(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(WORDS[:20])
    content = layout(
        ("", [qa("empty", "waa ?", "wab")]),
        ("wab", [qa("one token", "waa ?", "wab")]),
        ("wab wac wad", [qa("cut", long, "wac", 4), qa("absent", "waa ?", "wae"), qa("moved", "waa ?", "wad", 1)]),
        (long, [qa("long", "waa ?", WORDS[19], 19 * 4), qa("none", "waa ?", is_impossible=True)]),
        ("wab", [{"id": "unlabelled", "question": "waa ?"}]),
    )
    file = save(tmp_path / "train-v2.0.json", content)
    options = {"tokenizer": tokenizer, "model": MODEL, "data_dir": str(tmp_path), "max_query_length": 8}
    task = TASKS["squad"](seed=0, doc_stride=4, **options)
    stream = task.stream(2, 20, 1)
    said = capsys.readouterr().err
    for reason in (MOVED, QUESTION_CUT, CONTEXT_EMPTY, UNLABELLED):
        assert f"train: 1 x {reason} (first: {file}, article 0" in said
    assert f"train: 2 x {NOT_FOUND}" in said and f"train: 2 x {NO_TARGET}" in said
    # Windows of 15 tokens of the 20 a stride of 4 apart, twice; of the others one each where an answer is known.
    assert stream.num_examples == 3 + 2 * 3

    assert task.read_file is not None
    for name in ("train", "dev"):  # a file's name is no role
        predicted = task.read_file(save(tmp_path / name, content), 20)
        assert predicted.num_items == 8 and len(predicted.examples) > stream.num_examples
    predicted = task.read_file(file, 20)
    predicted.write({"logits": np.zeros((len(predicted.examples.ids), 2), np.float32)}, tmp_path / "out", {})
    texts = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert list(texts) == ["empty", "one token", "cut", "absent", "moved", "long", "none", "unlabelled"]
    assert texts["empty"] == ""

    save(tmp_path / "dev-v2.0.json", content)
    with pytest.raises(ValueError, match=r"question 0 \(unlabelled\): no answers: add them"):
        task.evaluation("dev", 4, 20, 1)
    with pytest.raises(ValueError, match=r"question 1 \(none\) has no answer, but version=1.1"):
        TASKS["squad"](seed=0, version="1.1", train=file.name, **options).stream(2, 20, 1)
    with pytest.raises(ValueError, match="max_seq_length 10 leaves no room for a context"):
        task.stream(2, 10, 1)
    with pytest.raises(ValueError, match="a sequence has 85 tokens, the model max_position_embeddings=64"):
        save(tmp_path / "wide.json", layout((" ".join(WORDS * 2), [qa(1, "waa ?", "wab", 4)])))
        TASKS["squad"](seed=0, train="wide.json", **options).stream(2, 100, 1)
    with pytest.raises(FileNotFoundError, match=r"nothing\.json is no file: give a JSON file"):
        TASKS["squad"](seed=0, train="nothing.json", **options).stream(2, 20, 1)
    for wrong, message in (
        ({"version": "2"}, "version='2' is unknown"),
        ({"rules": "bleu"}, "rules='bleu' is unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            TASKS["squad"](seed=0, **options, **wrong)


def test_no_development_set_and_an_empty_file(tmp_path: Path, tokenizer: str) -> None:
    task = TASKS["squad"](seed=0, data_dir=str(tmp_path), dev="", tokenizer=tokenizer, model=MODEL, max_query_length=8)
    assert not list(task.evaluation("dev", 4, 32, 8).batches)
    empty = save(tmp_path / "empty.json", layout())
    assert task.read_file is not None
    task.read_file(empty, 32).write({}, tmp_path / "out", {})
    assert json.loads((tmp_path / "out" / "predictions.json").read_text()) == {}


def test_sets_of_tfds_are_taken_only_where_no_file_is_named(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def read(_version: str, split: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(split)
        return [make_question("1", "waa ?", "wab wac", [("wab", 0)])]

    monkeypatch.setattr("bert_jax.tasks.squad.read_squad_tfds", read)
    options: dict[str, Any] = {"seed": 0, "tokenizer": tokenizer, "model": MODEL, "max_query_length": 8}
    mine = str(save(tmp_path / "mine.json", questions_of(3, impossible=False)))
    task = TASKS["squad"](train=mine, **options)
    assert task.stream(2, 32, 1).num_examples == 3 and not list(task.evaluation("dev", 2, 32, 1).batches)
    task = TASKS["squad"](dev=mine, **options)
    assert len(list(task.evaluation("dev", 2, 32, 1).batches)) == 1
    with pytest.raises(ValueError, match="train is not set: give its file"):
        task.stream(2, 32, 1)
    assert not asked
    for dev, expected in ((None, ["train", "dev"]), ("", ["train"])):
        asked.clear()
        task = TASKS["squad"](dev=dev, **options)
        assert task.stream(1, 32, 1).num_examples == 1
        assert bool(list(task.evaluation("dev", 2, 32, 1).batches)) == (dev is None)
        assert asked == expected


def test_korean_answers_end_inside_words(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "서울", "##은", "수도", "##이다", "어디", "?"]
    WordPiece(pieces, lowercase=False).save(tmp_path / "tokenizer")
    content = layout(("서울은 수도이다", [qa("a", "어디 ?", "서울", 0)]), version="KorQuAD_v1.0_dev")
    save(tmp_path / "k.json", content)
    options: dict[str, Any] = {"tokenizer": str(tmp_path / "tokenizer"), "model": MODEL, "max_query_length": 8}
    for rules, f1 in (("korquad", 80.0), (None, 80.0), ("squad", 0.0)):  # 서울은 for 서울: characters or words
        task = TASKS["squad"](seed=0, version="1.1", dev="k.json", data_dir=str(tmp_path), rules=rules, **options)
        dataset = task.evaluation("dev", 1, 32, 1).dataset
        assert dataset is not None
        logits = np.full((len(dataset.examples.ids), 2), -9.0, np.float32)
        logits[4, 0] = logits[5, 1] = 1.0
        assert dataset.scores({"logits": logits}) == pytest.approx({"exact_match": 0.0, "f1": f1})
        logits[4, 1] = 2.0
        assert dataset.scores({"logits": logits}) == {"exact_match": 100.0, "f1": 100.0}


@pytest.mark.parametrize("choices", ["version=1.1", "version=2.0", "version=1.1,stage=triviaqa"])
def test_the_recipe_is_accepted(tmp_path: Path, tokenizer: str, choices: str) -> None:
    recipe = squad_recipe.get_config(choices)
    recipe.dev = "mine.json"
    assert recipe.train == ("triviaqa-train.json" if "triviaqa" in choices else None)  # a field of its own
    recipe.data_dir, recipe.tokenizer, recipe.model = (
        str(tmp_path),
        tokenizer,
        {**MODEL, "max_position_embeddings": 384},
    )
    train_file = "triviaqa-train.json" if "triviaqa" in choices else f"train-v{recipe.version}.json"
    save(tmp_path / train_file, questions_of(20, impossible=False))
    settings, task = read_config(recipe)
    assert (settings.batch_size, settings.max_seq_length) == (48 if "2.0" in choices else 32, 384)
    assert plan(settings, task)[0].train_steps == 1
    for wrong in ("version=3", "stage=all", "task=qa"):
        with pytest.raises(ValueError, match=r"^squad\.py has no"):
            squad_recipe.get_config(wrong)


def test_the_module_is_where_the_scorer_is() -> None:
    assert bert_jax.tasks.squad.score is score


def test_transformers_gives_the_same_loss(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="parity with PyTorch needs torch")
    transformers = pytest.importorskip("transformers", reason="parity needs transformers")
    from bert_jax.interop import hugging_face

    torch.manual_seed(0)
    sizes = {name: value for name, value in MODEL.items() if name != "dtype"}
    peer = transformers.BertForQuestionAnswering(
        transformers.BertConfig(vocab_size=TOKENIZER.vocab_size, hidden_act="gelu", **sizes)
    ).eval()
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    peer.save_pretrained(tmp_path / "peer")
    (tmp_path / "peer" / "vocab.txt").write_text("\n".join(TOKENIZER.pieces) + "\n")
    model, params, *_ = hugging_face.read(tmp_path / "peer")
    task = TASKS["squad"](seed=0, tokenizer=str(tmp_path / "peer"), model=model.__dict__)

    windows = [window for window in windows_of(16) if window.has_target]
    assert any(window.start_column for window in windows) and not all(window.start_column for window in windows)
    losses = []
    for window in windows:
        ids, segments = (torch.tensor(np.asarray(x), dtype=torch.long)[None] for x in window.sequence)
        start, end = (torch.tensor([column]) for column in (window.start_column, window.end_column))
        with torch.no_grad():
            losses.append(peer(ids, token_type_ids=segments, start_positions=start, end_positions=end).loss)
    (batch,) = packed_batches(window_examples(windows), pad_id=0, max_seq_length=64, tokens_a_batch=64 * 64)
    total, weight = compiled(task, jax.tree.map(jnp.asarray, params))(batch)[1]["loss"]
    assert weight == len(windows)
    assert total / weight == pytest.approx(float(np.mean(losses)), abs=1e-5)
