"""The comparison of fine-tuning: splits without leaks, the peer's features and statistics by hand, going on."""

import bz2
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.data.choices import read_hellaswag
from bert_jax.data.columns import FORMATS, read_columns
from bert_jax.data.glue import read_glue
from bert_jax.data.squad import read_questions
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.training.settings import plan, read_config
from bert_jax.training.sharding import make_mesh
from bert_jax.training.train import begin, device_batches
from experiments import compare_finetuning
from experiments.benchmark_step import NoCheckpoints
from experiments.compare_finetuning import choose_cases, find_encoder, main, make_config, peer_settings
from experiments.finetuning_cases import CASES, Sizes, by_source, write_case
from experiments.finetuning_page import is_degenerate, published_runs, statistics, summarise
from tests.tiny_model import QUIET

WORDS = ["the", "man", "plays", "a", "red", "guitar", "in", "rain", "dog", "runs", "on", "green"]
SMALL = Sizes(None, 4)
# Our names of the heads -> transformers'.
HEADS = dict.fromkeys(("classifier", "regressor", "choice_head", "tagging_head"), "classifier") | {
    "qa_head": "qa_outputs"
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few rows of every case where `data/README.md` of the shared data has them."""
    directory = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)

    def text(words: int = 4) -> str:
        return " ".join(rng.choice(WORDS, words))

    def write(name: str, content: str) -> None:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content, encoding="utf-8")

    for split, count in (("train", 10), ("dev", 6)):
        rows = [f"{i}\t{text()}\t{text(6)}\t{i % 6 * 1.0}" for i in range(count)]
        write(f"glue/STS-B/{split}.tsv", "\n".join(["index\tsentence1\tsentence2\tscore", *rows]) + "\n")
    labels = ("entailment", "not_entailment")
    rows = [f"{i}\twho plays {i}?\t{text()} {i // 2}\t{labels[i % 2]}" for i in range(20)]
    write("glue/QNLI/dev.tsv", "\n".join(["index\tquestion\tsentence\tlabel", *rows]) + "\n")
    items = [f"Topic {i // 2}: {text()}\n{i % 4}\n" + "\n".join(text() for _ in range(4)) for i in range(12)]
    (directory / "hellaswag").mkdir()
    packed = bz2.compress(("\n".join(items) + "\n").encode())
    (directory / "hellaswag" / "hellaswag_val_full.txt.bz2").write_bytes(packed)
    for name in ("wnut17train.conll", "emerging.dev.conll"):
        write(f"ner/wnut17/{name}", "the\tO\nman\tO\nin\tO\nlondon\tB-place\n\na\tO\ndog\tO\nparis\tB-place\n\n" * 4)
    articles = []
    for number in range(4):
        context = f"the man {number} plays a red guitar in london"
        qas = [
            {"id": f"{number}-{i}", "question": "who plays?", "answers": [{"text": "the man", "answer_start": 0}]}
            for i in range(3)
        ]
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": qas}]})
    write("squad/xquad/xquad.en.json", json.dumps({"version": "1.1", "data": articles}))
    return directory


def prepared(name: str, data_dir: Path, encoder: Path, output: Path, sizes: Sizes = SMALL) -> dict[str, Any]:
    """The files of a case, and its config, small."""
    write_case(CASES[name], data_dir, output, sizes)
    config = make_config(CASES[name], output, encoder, 1.0)
    return config | {"batch_size": 4, "max_seq_length": 72 if name == "xquad" else 32}


def peer_of(name: str, config: dict[str, Any]) -> Any:
    from experiments.peers.torch_finetuning import FineTuning, Settings

    return FineTuning(Settings(**peer_settings(CASES[name], config)))


def test_rows_of_one_source_stay_together() -> None:
    sources = [i // 3 for i in range(30)]
    train, dev = by_source(range(30), sources, 7)
    assert len(dev) == 7 and train == sorted(train) and dev == sorted(dev)
    assert not {sources[i] for i in train} & {sources[i] for i in dev}
    assert len(train) == 21  # two rows of the last source are in neither
    assert by_source(range(30), sources, 7) == (train, dev)
    with pytest.raises(ValueError, match="4 rows leave nothing for training after 4"):
        by_source(range(4), range(4), 4)


def test_splits_are_official_layouts_without_leaks(data_dir: Path, tmp_path: Path) -> None:
    for name, case in CASES.items():
        hashes = write_case(case, data_dir, tmp_path / name, Sizes(5, 4))
        assert set(hashes) == set(case.files.values()) and len(set(hashes.values())) == 2
    problems = Problems()
    for name, task in (("sts-b", "STS-B"), ("qnli", "QNLI")):
        assert [len(read_glue(task, tmp_path / name, split, problems)) for split in ("train", "dev")] == [5, 4]
    train, dev = (read_glue("QNLI", tmp_path / "qnli", split, problems) for split in ("train", "dev"))
    assert not {row.text_b for row in train} & {row.text_b for row in dev}
    choices = [read_hellaswag(tmp_path / "hellaswag" / f"hellaswag_{s}.jsonl", problems) for s in ("train", "val")]
    assert [len(rows) for rows in choices] == [5, 4]
    topics = [{row.context.split(":")[0] for row in rows} for rows in choices]
    assert not topics[0] & topics[1]
    original = read_hellaswag(data_dir / "hellaswag/hellaswag_val_full.txt.bz2", problems)
    assert all(row in original for rows in choices for row in rows)
    tagged = [read_columns(tmp_path / "wnut17" / name, FORMATS["wnut17"]) for name in CASES["wnut17"].files.values()]
    assert [len(sentences) for sentences in tagged] == [5, 4]
    asked = [read_questions(tmp_path / "xquad" / name) for name in CASES["xquad"].files.values()]
    assert [len(questions) for questions in asked] == [6, 6]  # whole articles
    assert not {one.title for one in asked[0]} & {one.title for one in asked[1]}
    with pytest.raises(FileNotFoundError, match=r"no glue/STS-B in .* for STS-B; give another folder"):
        write_case(CASES["sts-b"], tmp_path, tmp_path, Sizes())


def test_peer_pads_to_the_longest_or_to_the_limit(data_dir: Path, encoder: Path, tmp_path: Path) -> None:
    run = peer_of("sts-b", prepared("sts-b", data_dir, encoder, tmp_path))
    features = run.train_features
    assert features[0]["input_ids"][0] == 2 and features[0]["input_ids"].count(3) == 2
    batch = run._collate(features[:4])
    assert batch["input_ids"].shape[1] == max(len(feature["input_ids"]) for feature in features[:4])
    assert batch["labels"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [int(row.sum()) for row in batch["attention_mask"]] == [len(f["input_ids"]) for f in features[:4]]
    run.settings = replace(run.settings, padding="max_length")
    assert run._collate(features[:4])["input_ids"].shape == (4, 32)


def test_peer_tags_first_pieces(data_dir: Path, encoder: Path, tmp_path: Path) -> None:
    config = prepared("wnut17", data_dir, encoder, tmp_path)
    (tmp_path / "emerging.dev.conll").write_text("xyz\tO\nlondon\tB-place\n\u200b\tO\n" + "dog\tO\n" * 30)
    task = peer_of("wnut17", config).task
    assert task.tags == ["B-place", "O"]
    (feature,) = task.features("dev")
    assert feature["words"][:6] == [None, 0, 0, 0, 1, 3]  # \u200b has no piece
    assert feature["label"][:6] == [-100, 1, -100, -100, 0, 1]
    logits = np.zeros((32, 2), np.float32)
    logits[:, 1] = 1.0
    logits[[2, 4], 0] = 2.0  # the second piece of xyz does not count, the first of london does
    assert task.score([logits])["f1"] == 100.0


def test_peer_finds_answers_in_windows(data_dir: Path, encoder: Path, tmp_path: Path) -> None:
    config = prepared("xquad", data_dir, encoder, tmp_path) | {
        "max_query_length": 2,
        "doc_stride": 3,
        "max_seq_length": 10,
    }
    run = peer_of("xquad", config)
    first = [feature for feature in run.train_features if feature["question"] == 0]
    # the man 0 plays a | plays a red guitar in | ...: the next window starts 3 tokens later; the question is cut.
    assert [feature["input_ids"][4] for feature in first] == [
        load_tokenizer(encoder).pieces.index(w) for w in ("the", "plays", "guitar")
    ]
    assert [feature["label"] for feature in first] == [(4, 5), (0, 0), (0, 0)]
    dev = run.task.features("dev")
    outputs = [np.zeros((len(feature["input_ids"]), 2), np.float32) for feature in dev]
    for feature, logits in zip(dev, outputs, strict=True):
        start, end = feature["label"]
        if end:
            logits[start, 0] = logits[end, 1] = 9.0
    assert run.task.score(outputs)["exact_match"] == 100.0


@pytest.mark.parametrize("name", CASES)
def test_peer_learns_and_is_scored(name: str, data_dir: Path, encoder: Path, tmp_path: Path) -> None:
    run = peer_of(name, prepared(name, data_dir, encoder, tmp_path))
    trained, again = run.train(), run.train(1)
    rows = len(run.train_features)
    assert trained["steps"] == run.train_steps == -(-rows // 4) and trained["examples"] == rows
    assert again["steps"] == 1 and np.isfinite(again["loss"])
    result = run.evaluate()
    assert set(CASES[name].metrics) <= set(result["scores"]) and result["examples"] >= 4
    assert run.predict(2)["examples"] == 2
    loss = trained["loss"]
    run.start(0)
    assert run.train()["loss"] == pytest.approx(loss, rel=1e-5)
    run.start(1)
    assert run.train()["loss"] != pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_steps_equal_the_peers(name: str, data_dir: Path, encoder: Path, tmp_path: Path) -> None:
    """From the same head, on the same batches and without dropout: what is left between the sides is chance."""
    from experiments.peers.torch_bert import linear_rate, load_parameters

    config = prepared(name, data_dir, encoder, tmp_path) | {"train_epochs": 20.0, "warmup_ratio": 0.0}
    config["model"] = config["model"] | QUIET
    config["optimizer"]["learning_rate"] = 3e-4  # for losses that change from step to step
    if name == "xquad":  # transformers' softmax over a window has the batch's padding in it: alone, there is none
        config["batch_size"] = 1
    settings, task = read_config(config)
    (phase,) = plan(settings, task)
    peer, mesh = peer_of(name, config), make_mesh(settings.mesh)
    peer.model.eval()  # no dropout
    stream = task.stream(settings.batch_size, settings.max_seq_length, 1)
    losses: dict[str, list[float]] = {"ours": [], "peer": []}
    with jax.set_mesh(mesh):
        state, step, _ = begin(settings, (phase,), task, mesh, NoCheckpoints())
        params = flatten_dict(jax.device_get(state.params), sep="/")
        tags = [task.labels.index(tag) for tag in peer.task.tags] if name == "wnut17" else slice(None)
        for path in [path for path in params if path.split("/")[0] in HEADS]:
            head, kind = path.split("/")
            params[f"{HEADS[head]}/{kind}"] = params[path][..., tags]
        load_parameters(peer.model, params)
        batch = device_batches(task, phase, mesh)
        for number in range(6):
            state, figures = step(state, batch(number)[0], 1)
            losses["ours"].append(float(figures["loss"][0] / figures["loss"][1]))
            chosen = [peer.train_features[i] for i in stream.indices(number)]
            assert number or chosen == next(peer._shuffled(settings.seed))  # the order is one for both sides
            loss = peer.model(**peer._collate(chosen)).loss
            loss.backward()
            peer.optimizer.step(linear_rate(number, peer.peak, 0, phase.train_steps))
            losses["peer"].append(loss.item())
    assert losses["ours"] == pytest.approx(losses["peer"], rel=1e-4)
    assert len(set(losses["ours"])) == 6


def test_ours_is_timed(data_dir: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.peers import our_finetuning

    monkeypatch.setattr(our_finetuning.loop, "MetricLog", our_finetuning.TimedLog)
    config = prepared("sts-b", data_dir, encoder, tmp_path / "data")
    result = our_finetuning.run(config | {"max_seq_length": 16}, str(tmp_path / "run"))
    assert set(CASES["sts-b"].metrics) <= set(result["scores"]) and result["steps"] == 2
    assert 0 < result["evaluation_seconds"] < result["whole_seconds"] > result["training_seconds"] > 0


def test_statistics_by_hand() -> None:
    found = statistics([1.0, 2.0, 3.0, 6.0])
    assert (found["mean"], found["median"], found["max"]) == (3.0, 2.5, 6.0)
    assert found["standard_deviation"] == pytest.approx((14 / 3) ** 0.5)
    half = 3.182446 * (14 / 3) ** 0.5 / 2  # t of 3 degrees of freedom
    assert found["interval"] == pytest.approx([3 - half, 3 + half], rel=1e-6)
    assert statistics([1.0])["interval"] == [None, None]


@pytest.mark.parametrize(("mean", "verdict"), [(0.2, "below"), (0.5, "inside"), (0.8, "above")])
def test_verdict(mean: float, verdict: str) -> None:
    def run(side: str, score: float) -> dict[str, Any]:
        return {"side": side, "scores": {"accuracy": score, "degenerate": float(score == 0.51)}}

    peers = [run("peer", score) for score in (0.49, 0.5, 0.51)]
    found = summarise("qnli", [run("ours", mean), run("ours", mean), *peers])
    assert found["scores"]["accuracy"]["verdict"] == verdict
    assert found["degenerate"] == {"ours": 0, "peer": 1}
    assert summarise("qnli", [run("ours", mean), *peers[:2]])["scores"]["accuracy"]["verdict"] == "unknown"


def test_what_is_published_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"optimizer": {"learning_rate": 1e-4}, "order": "shared", "lengths": (1, 2)}
    runs = [{"side": side, "seed": seed, "scores": {}} for seed in (0, 1) for side in ("ours", "peer")]
    page = {"cases": [{"case": "qnli", "settings": settings, "runs": runs}]}
    (tmp_path / "finetuning_comparison.json").write_text(json.dumps(page))
    published = published_runs(tmp_path, "qnli", settings)
    assert published == runs
    assert not published_runs(tmp_path, "qnli", settings | {"order": "its own"})
    assert not published_runs(tmp_path, "sts-b", settings) and not published_runs(tmp_path / "no", "qnli", settings)
    monkeypatch.setattr(compare_finetuning, "RUNNERS", {})
    assert compare_finetuning.finish("qnli", {}, settings, range(2), tmp_path / "log", published) == runs


def test_runs_that_learned_nothing() -> None:
    assert is_degenerate("qnli", {"accuracy": 0.55, "majority_share": 0.55, "degenerate": 0.0})
    assert is_degenerate("wnut17", {"f1": 0.0}) and not is_degenerate("wnut17", {"f1": 3.0})
    assert not is_degenerate("sts-b", {"pearson": 0.8, "spearman": 0.8, "degenerate": 0.0})


def test_a_stopped_comparison_goes_on(
    data_dir: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, int]] = []
    fails: list[int] = [1]

    def fake(side: str) -> Callable[..., Any]:
        @contextmanager
        def runner(name: str, config: dict[str, Any], workdir: Path) -> Iterator[Callable[[int], dict[str, Any]]]:
            def run(seed: int) -> dict[str, Any]:
                if side == "peer" and seed in fails:
                    raise RuntimeError("worker ended")
                asked.append((name, side, seed))
                scores = {"accuracy": 0.5 + seed / 10, "pearson": 0.5, "spearman": 0.5 + seed / 10}
                times = dict.fromkeys(("training_seconds", "evaluation_seconds", "whole_seconds"), 1.0)
                return {"scores": scores, "steps": 3} | times

            yield run

        return runner

    monkeypatch.setattr(compare_finetuning, "RUNNERS", {side: fake(side) for side in ("ours", "peer")})
    results = tmp_path / "results"
    arguments = ["--encoder", str(encoder), "--data_dir", str(data_dir), "--workdir", str(tmp_path / "work")]
    arguments += ["--results", str(results), "--cases", "sts-b:8:4,qnli:8:4", "--seeds", "2"]
    with pytest.raises(SystemExit, match="worker ended"):
        main(arguments)
    assert asked == [("sts-b", "ours", 0), ("sts-b", "peer", 0), ("sts-b", "ours", 1)]
    fails.clear()
    main(arguments)
    assert asked[3:] == [("sts-b", "peer", 1), *(("qnli", side, seed) for seed in (0, 1) for side in ("ours", "peer"))]
    fewer = ["1" if word == "2" else word for word in arguments]
    main(fewer)  # nothing is run, and what has run with more seeds is kept
    assert len(asked) == 8
    found = json.loads((results / "finetuning_comparison.json").read_text())
    assert [len(entry["runs"]) for entry in found["cases"]] == [4, 4]
    main([*arguments, "--epochs", "3"])  # another setting: nothing of before is of use
    assert len(asked) == 16
    found = json.loads((results / "finetuning_comparison.json").read_text())
    assert found["cases"][0]["settings"]["train_epochs"] == 3.0
    assert [run["side"] for run in found["cases"][1]["runs"]] == ["ours", "peer"] * 2
    text = (results / "finetuning_comparison.md").read_text()
    assert "| QNLI, accuracy | bert_jax | 55.00 | 7.07 | 55.00 | 60.00 | 0 of 2 |" in text
    assert "STS-B, Spearman" in text and "--epochs 3" in text
    main([*(word.replace("sts-b:8:4,", "") for word in arguments), "--epochs", "3"])  # the other case stays
    again = (results / "finetuning_comparison.md").read_text()
    assert len(asked) == 16 and "--cases qnli:8:4 --seeds 2 --epochs 3" in again
    assert again[again.index("Encoder") :] == text[text.index("Encoder") :]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--cases has 'mnli'; take some of sts-b,"):
        choose_cases("sts-b,mnli")
    with pytest.raises(ValueError, match=r"--cases has 'qnli:8:x'"):
        choose_cases("qnli:8:x")
    with pytest.raises(ValueError, match="is neither a Hugging Face directory"):
        find_encoder(str(tmp_path))
