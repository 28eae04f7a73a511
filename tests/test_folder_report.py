"""The report of a folder of runs: statistics by hand, names of settings, and what is broken is said."""

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from bert_jax.data.object_store import Store, push
from bert_jax.report import write_report
from bert_jax.report.folder import read_folder
from bert_jax.report.folder_page import summed
from bert_jax.report.studies import colour, order, shortened, studies, without_common_folder
from bert_jax.report.study_charts import curves, sensitivity, spread
from tests.shaky_store import clean_stores  # noqa: F401  (a fixture)
from tests.test_report import Page, page_of, run_of

# (learning rate, seed): the last score.
SCORES = {
    **{(5e-5, 0): 0.80, (5e-5, 1): 0.84, (5e-5, 2): 0.85},
    **{(2e-4, 0): 0.90, (2e-4, 1): 0.50, (2e-4, 2): 0.70},
}
ENVIRONMENT = {"devices": "1 x cpu", "processor": "Abacus 2000", "cpu_cores": 2}


def config_of(rate: float, seed: int, **changes: Any) -> dict[str, Any]:
    config = {"task": "classification", "seed": seed, "data_dir": "/sets", "data": {"source": "glue", "name": "rte"}}
    config |= {"optimizer": {"learning_rate": rate, "weight_decay": 0.01}, "train_steps": 40, "labels": ["no", "yes"]}
    return config | changes


def lines_of(score: float, last: int = 40, **figures: float) -> list[dict[str, Any]]:
    """Twenty steps a line; the score was 0.5 before."""
    training = [
        {"step": step, "loss": 1 / step, "tokens_per_second": 1000.0, "steps_per_second": 2.0}
        for step in range(20, last + 1, 20)
    ]
    found = {"eval/score": score, "eval/pearson": score + 0.01, "eval/loss": 1 - score, "eval/degenerate": 0.0}
    early = [{"step": 20, **found, "eval/score": 0.5}] if last > 20 else []
    return [*training, *early, {"step": last, **found, **figures}]


def point_of(rate: float, seed: int, score: float) -> dict[str, Any]:
    return {
        "point": {"optimizer.learning_rate": rate, "seed": seed},
        "figure": "score",
        "mode": "max",
        "result": {"score": score, "loss": 1 - score, "degenerate": 0.0},
        "environment": ENVIRONMENT,
    }


def write_run(path: Path, lines: list[dict[str, Any]], config: dict[str, Any] | None) -> Path:
    run_of(path, lines, config)
    (path / "environment.json").write_text(json.dumps(ENVIRONMENT))
    return path


def write_sweep(folder: Path) -> Path:
    points = {}
    for (rate, seed), score in SCORES.items():
        name = f"learning_rate={rate},seed={seed}"
        degenerate = {"eval/degenerate": 1.0} if score == 0.5 else {}
        path = write_run(folder / name, lines_of(score, **degenerate), config_of(rate, seed))
        counts = [[seed, 1], [2, 3]]
        (path / "evaluation.json").write_text(
            json.dumps({"confusion_matrix": {"labels": ["no", "yes"], "counts": counts}})
        )
        points[name] = point_of(rate, seed, score)
    config = {name: value for name, value in config_of(0, 0).items() if name not in ("seed", "labels")}
    config["optimizer"] = {"weight_decay": 0.01}
    (folder / "sweep.json").write_text(json.dumps({"config": config, "points": points}))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "rte & <grid>")


def rows_of(folder: Path) -> list[list[str]]:
    """The cells of all rows of the page's tables, as text."""
    html = write_report(folder).read_text(encoding="utf-8")
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_statistics_of_each_setting(sweep: Path) -> None:
    rows = rows_of(sweep)
    assert ["Score", "median", "mean", "s.d.", "best", "n", "degenerate"] in rows
    low = statistics.stdev([0.80, 0.84, 0.85])
    assert ["learning_rate=5e-05", "0.8400", "0.8300", f"{low:.4f}", "0.8500", "3", "0"] in rows
    assert ["learning_rate=0.0002", "0.7000", "0.7000", "0.2000", "0.9000", "3", "1"] in rows
    run = ["learning_rate=5e-05,seed=1", "finished, 40 steps", "0.8400", "0.025", "1,000", "20 s"]
    assert run in rows
    page = page_of(sweep)
    for expected in (
        "rte & <grid>",
        "6 runs · 2 settings · 6 finished",
        "Best by median: learning_rate=5e-05",
        "Classification on rte",
        "All on Abacus 2000, 2 cores",
        "Score by learning rate",
        "learning_rate=5e-05, sum of 3 runs",
        "12 of 21 right",
        "finished, 40 steps · degenerate",
    ):
        assert expected in page.text, expected


def test_names_say_what_differs_and_only_that(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"batch_size": 16, "init_from": "/runs/a/base", "log_every_steps": 7},
        {"batch_size": 8, "init_from": "/runs/b"},
    ]
    for number, change in enumerate(changes):
        for seed in (0, 1):
            write_run(tmp_path / f"{number}_{seed}", lines_of(0.5), config_of(1e-4, seed, **change))
    (study,) = studies(read_folder(tmp_path).entries)
    assert [setting.name for setting in study.settings] == [
        "batch_size=8, init_from=b",
        "batch_size=16, init_from=a/base",
        "batch_size=None, init_from=None",
    ]
    assert [len(setting.entries) for setting in study.settings] == [2, 2, 2]
    assert [setting.kind for setting in study.settings] == ["s0", "s3", "s7"]
    assert shortened(["a.b", "c.b", "d.e"]) == ["a.b", "c.b", "e"]
    assert without_common_folder(["/r/x/1", "/r/y/2", "None"]) == ["x/1", "y/2", "None"]
    assert sorted(["b", "10", "9", "5e-05"], key=order) == ["5e-05", "9", "10", "b"]
    assert [colour(place, 8) for place in range(8)] == [f"s{n}" for n in range(8)] and colour(0, 1) == "s2"


def test_only_finished_runs_count(tmp_path: Path) -> None:
    for seed, (score, last) in enumerate(((0.8, 40), (0.6, 40), (0.1, 20))):
        write_run(tmp_path / str(seed), lines_of(score, last), config_of(1e-4, seed))
    write_run(tmp_path / "other", lines_of(0.99, 20), config_of(1e-3, 0))
    rows = rows_of(tmp_path)
    assert ["learning_rate=0.0001", "0.7000", "0.7000", "0.1414", "0.8000", "2", "0"] in rows
    assert ["learning_rate=0.001", *["–"] * 4, "0", "–"] in rows
    assert ["2", "at step 20 of 40", "0.1000", "0.050", "1,000", "10 s"] in rows
    page = page_of(tmp_path)
    assert "2 finished · 2 not finished" in page.text and "Best by median: learning_rate=0.0001" in page.text
    for seed in (0, 1):
        shutil.rmtree(tmp_path / str(seed))
    assert "Best by median" not in page_of(tmp_path).text


def test_a_score_of_one_metric_has_its_name(tmp_path: Path) -> None:
    for seed in (0, 1):
        lines = [{"step": 40, "eval/score": 0.75 + seed / 8, "eval/accuracy": 0.75 + seed / 8}]
        write_run(tmp_path / str(seed), lines, config_of(1e-4, seed))
    assert ["all runs", "81.2%", "81.2%", "8.8%", "87.5%", "2"] in rows_of(tmp_path)  # nothing says degenerate


def test_what_is_broken_is_said_and_not_fatal(sweep: Path) -> None:
    folder = sweep.parent
    (folder / "deep" / "er" / "begun").mkdir(parents=True)
    (folder / "deep" / "er" / "begun" / "environment.json").write_text("{}")
    (run_of(folder / "odd", [{"step": 1, "loss": 1.0}]) / "metrics.jsonl").write_text("[1]\n")
    (run_of(folder / "bytes", [{"step": 1, "loss": 1.0}]) / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    (run_of(folder / "half", [{"step": 1, "loss": 1.0}]) / "config.json").write_text('{"task": "cl')
    (folder / "other").mkdir()
    (folder / "other" / "sweep.json").write_text('{"points": ')
    run_of(folder / "odd" / "checkpoints" / "1", [{"step": 1, "loss": 1.0}])  # no run of its own
    rows = rows_of(folder)
    assert rows[-6:] == [
        ["folder", "why"],
        ["bytes", next(row[1] for row in rows if row[0] == "bytes")],
        ["deep/er/begun", "holds no line in metrics.jsonl yet; let a run reach its first log_every_steps"],
        ["half", "config.json is missing or damaged: what it was a run of is not known"],
        ["odd", "odd/metrics.jsonl is damaged: line 1 has no step; remove it"],
        ["other/sweep.json", "is damaged, or of another program"],
    ]
    assert "decode" in next(row[1] for row in rows if row[0] == "bytes")
    assert "5 not readable" in page_of(folder).text and ["half", "at step 1", "–", "1.000", "–", "–"] in rows
    (folder / "other" / "sweep.json").write_text('{"config": {}, "points": {"a": 3}}')
    assert ["other/sweep.json", "its point a is damaged"] in rows_of(folder)


def test_a_point_whose_folder_is_gone(sweep: Path) -> None:
    before = rows_of(sweep)
    shutil.rmtree(sweep / "learning_rate=0.0002,seed=0")
    rows = rows_of(sweep)
    assert ["learning_rate=0.0002,seed=0", "finished, says sweep.json", "0.9000", "–", "–", "–"] in rows
    of = [next(row for row in table if row[0] == "learning_rate=0.0002" and len(row) == 7) for table in (before, rows)]
    assert of[0] == of[1]


def test_other_data_is_another_table(sweep: Path) -> None:
    data = {"source": "glue", "name": "mrpc"}
    write_run(sweep / "mrpc", lines_of(0.7), config_of(1e-4, 0, data=data))
    text = page_of(sweep).text
    assert text.index("Classification on rte") < text.index("Classification on mrpc")
    assert "3 settings of 2 tasks or data sets" in text
    assert [[s.name for s in study.settings] for study in studies(read_folder(sweep).entries)][1] == ["mrpc"]


def test_pages_of_runs_are_linked(sweep: Path) -> None:
    run = sweep / "learning_rate=5e-05,seed=1"
    page_of(run)
    page_of(sweep, addresses=("learning_rate%3D5e-05%2Cseed%3D1/report.html",))
    page_of(sweep.parent, addresses=("rte%20%26%20%3Cgrid%3E/learning_rate%3D5e-05%2Cseed%3D1/report.html",))


def test_a_line_and_its_band() -> None:
    found = spread([([10, 20, 30], [1.0, 2.0, 4.0]), ([10, 20], [3.0, 2.0]), ([], [])])
    assert found == ([10, 20], [2.0, 2.0], [1.0, 2.0], [3.0, 2.0])
    # One of which only a sweep's results are left, at step 0, takes nothing from the others.
    assert spread([([10, 20], [1.0, 2.0]), ([0], [3.0])]) == ([10, 20], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    assert spread([]) == ([], [], [], [])


def test_curves_and_sensitivity_have_all_seeds(sweep: Path) -> None:
    (study,) = studies(read_folder(sweep).entries)
    drawn = curves(study, "Score", "eval/score", str)
    assert drawn.count('class="line ') == drawn.count('class="band ') == 2
    drawn = sensitivity(study)
    assert drawn.count("<circle") == 6 and drawn.count('class="line ') == 1
    assert "learning_rate=0.0002,seed=1: 0.5000" in drawn and "median" in drawn
    assert re.findall(r'class="below"[^>]*>([^<]*)', drawn) == ["5e-05", "0.0002"]
    write_run(sweep / "a", lines_of(0.7), config_of(5e-5, 0, batch_size=8))
    write_run(sweep / "b", lines_of(0.7), config_of(2e-4, 0, batch_size=8))
    (study,) = studies(read_folder(sweep).entries)
    assert sensitivity(study).count('class="line ') == 2 and "batch_size=8 <b>0.7000</b>" in sensitivity(study)


def test_confusions_are_added_cell_by_cell() -> None:
    assert summed([[[1, 2], [3, 4]], [[10, 20], [30, 40]]]) == [[11, 22], [33, 44]]


def test_a_pre_training_is_chosen_by_its_loss(tmp_path: Path) -> None:
    for place, (size, loss) in enumerate(((128, 3.0), (256, 2.5))):
        lines = [{"step": 10, "loss": loss, "mlm_loss": loss}, {"step": 10, "eval/mlm_loss": loss}]
        config = {"task": "pretraining", "corpus": "/c", "train_steps": 10, "model": {"hidden_size": size}}
        path = write_run(tmp_path / str(place), lines, config)
        bins = [{"first": 1, "last": 10, "right": 1 + place, "count": 4}]
        counts = {"step": 10, "examples": 4, "position": bins, "rank": bins}
        (path / "masked_accuracy.json").write_text(json.dumps(counts))
    page = page_of(tmp_path)
    assert "Lower is better" in page.text and "Best by median: hidden_size=256" in page.text
    assert "By frequency of the piece" in page.text and "hidden_size=256, rank 1 to 10: 50.0% of 4" in page.text


def test_losses_of_other_problems_are_in_other_tables(tmp_path: Path) -> None:
    kinds = [("mlm", 0.8), ("mlm_nsp", 0.8), ("ltr", 0.8), ("rtl", 0.8), ("mlm", 1.0)]
    for place, (objective, share) in enumerate(kinds):
        config = {"task": "pretraining", "corpus": "/c", "objective": objective, "masking": {"mask": share}}
        write_run(tmp_path / str(place), [{"step": 10, "eval/mlm_loss": 3.0}], config | {"train_steps": 10})
    found = [[entry.path for entry in one.entries] for one in studies(read_folder(tmp_path).entries)]
    assert sorted(found) == [["0", "1"], ["2"], ["3"], ["4"]]


def test_many_runs_make_a_small_page(tmp_path: Path) -> None:
    for rate in range(1, 11):
        for seed in range(3):
            lines = [
                {"step": step, "loss": 1 / step + seed, "tokens_per_second": 1.0, "steps_per_second": 1.0}
                for step in range(1, 401)
            ]
            lines += [{"step": step, "eval/score": rate / 10, "eval/loss": 1.0} for step in range(1, 401)]
            write_run(tmp_path / f"{rate}_{seed}", lines, config_of(rate * 1e-5, seed))
    path = write_report(tmp_path)
    assert path.stat().st_size < 600_000
    text = Page(path.read_text()).text
    assert "Pale: the 2 settings with a lower rank" in text and "30 runs · 10 settings" in text
    (study,) = studies(read_folder(tmp_path).entries)
    assert [setting.kind for setting in study.settings] == ["rest", "rest", *(f"s{n}" for n in range(8))]


def test_a_folder_without_runs_and_sentences_for_one(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"^no run is in .*empty; give the --workdir of a run, or a folder"):
        write_report(tmp_path / "empty")
    with pytest.raises(ValueError, match="is no run, whose model could fill masks"):
        write_report(sweep, ["a [MASK]"])


def test_a_folder_at_a_url(sweep: Path, clean_stores: None) -> None:  # noqa: F811
    (sweep / "learning_rate=5e-05,seed=0" / "checkpoints" / "1").mkdir(parents=True)
    (sweep / "learning_rate=5e-05,seed=0" / "checkpoints" / "1" / "params").write_text("large")
    push(sweep, Store("memory://b/grid"))
    path = write_report("memory://b/grid")
    assert Store("memory://b/grid").read("report.html") == path.read_bytes()
    assert "Best by median: learning_rate=5e-05" in Page(path.read_text()).text
    assert not list(path.parent.rglob("params"))
    Store("memory://b/grid").remove("learning_rate=0.0002,seed=0")
    Store("memory://b/grid").remove("sweep.json")
    assert "5 runs" in Page(write_report("memory://b/grid").read_text()).text
    with pytest.raises(FileNotFoundError, match=r"^memory://b/none: no metrics.jsonl or sweep.json is there; check"):
        write_report("memory://b/none")
