"""The paper's tables: published figures, commands that are right, states and statistics by hand, what is refused."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from absl import flags
from ml_collections import config_flags

from bert_jax.training.result import FILE
from experiments import build_corpus
from experiments.paper import main
from experiments.paper_tables import full, small
from experiments.paper_tables.cell import Cell, Published, Scale, Table
from experiments.paper_tables.estimates import (
    DataSet,
    Machine,
    bilstm_parameters,
    fine_tuning_work,
    pretraining_work,
    seconds,
)
from experiments.paper_tables.measured import measure
from experiments.paper_tables.page import HEADER, fill, orders, page
from experiments.paper_tables.published import PUBLISHED
from experiments.paper_tables.results import Library
from experiments.paper_tables.run import SWEEP, TRAIN, Places, Run
from experiments.sweep_points import common
from tests.experiments.paper_results import write_sweep, write_training

ROOT = Path(__file__).parents[2]
PLACES = Places("runs/paper", "data", "text/*")
SCALES = {"paper": full.scale(PLACES), "small": small.scale(Places("runs/paper_small", "data", ""))}
# Figures that the tasks give, see tasks/scores.py, squad_score.py, entities.py and pretraining.py.
FIGURES = {"accuracy", "f1", "matthews", "spearman", "exact_match", "perplexity", "mlm_loss"}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "runs"), "data", "text/*")


@pytest.fixture
def scale(places: Places) -> Scale:
    return full.scale(places)


@pytest.fixture
def library(scale: Scale, places: Places, tmp_path: Path) -> Callable[[], Library]:
    """A new look at what is there."""
    return lambda: Library(scale.runs, places.runs, tmp_path / "kept")


def in_runs(places: Places) -> Path:
    return Path(places.runs)


def test_published_figures_are_the_reference_s(shared_data: Path) -> None:
    path = shared_data.parent / "reference" / "paper_numbers.md"
    if not path.is_file():
        pytest.skip(f"no {path}")
    sections = re.split(r"\*\*(?:Table (\d)\.|(Figure 5)\*\*)", path.read_text(encoding="utf-8"))
    texts = {(sections[i] or "figure5"): sections[i + 2] for i in range(1, len(sections), 3)}
    assert texts.keys() == PUBLISHED.keys()
    for name, table in PUBLISHED.items():
        there = [[float(n) for n in re.findall(r"\d+\.\d+", line)] for line in texts[name].splitlines()]
        for row, figures in table.rows.items():
            known = [figure for figure in figures if figure is not None]
            assert len(figures) == len(table.columns)
            runs = (line[i : i + len(known)] for line in there for i in range(len(line)))
            assert known in runs, (name, row)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_cell_has_a_run_or_a_reason(scale: Scale) -> None:
    assert scale.tables.keys() == PUBLISHED.keys()
    for table in scale.tables.values():
        for cell in table.cells.values():
            assert bool(cell.run) or cell.reason
            assert cell.reason or cell.figure in FIGURES
            assert not cell.run or cell.run in scale.runs
            assert not cell.chosen_by or scale.runs[cell.chosen_by].points() == scale.runs[cell.run].points()
    assert set(scale.runs) == {run.name for run in scale.runs_of(scale.tables)}  # none for nothing


def test_every_published_figure_of_ours_has_a_cell() -> None:
    for name, table in SCALES["paper"].tables.items():
        for row in {row for row, _ in table.cells}:
            for column in table.paper.columns:
                assert (table.paper.figure(row, column) is None) != ((row, column) in table.cells), (name, row, column)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_command_is_one_that_its_program_takes(scale: Scale) -> None:
    for run in scale.runs_of(scale.tables):
        words = shlex.split(run.command(PLACES))
        module = words[words.index("-m") + 1]
        path = ROOT / f"{module.replace('.', '/')}.py"
        assert path.is_file()
        makes = f"runs/paper/{run.name}/{FILE}" if run.program == TRAIN else run.makes
        assert makes == "" or words[:4] == ["test", "-e", makes, "||"]
        assert bool(makes) != (run.program == SWEEP)
        if run.recipe:
            config, points = run.config(), run.points()  # of fields that there are, or an error
            assert (ROOT / "configs" / run.recipe.partition(":")[0]).is_file() and config.task and points
        elif run.program == "build_corpus":
            build_corpus._parser().parse_args(list(run.arguments))
        for word in run.arguments if run.program != "build_corpus" else ():
            assert not word.startswith("--") or re.search(rf'"(--)?{word[2:]}"', path.read_text())


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
@pytest.mark.parametrize(
    "name", ["base", "base-cased-last", "large-cased-ner-grid-test", "ltr-bilstm-squad1", "ltr-rtl-qnli"]
)
def test_a_command_s_config_is_the_one_that_is_wanted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run = SCALES["small" if "rtl" in name else "paper"].runs[name]
    words, values = shlex.split(run.command(PLACES)), flags.FlagValues()
    recipe = words[words.index("--config") + 1]
    arguments = ["program", f"--config={recipe}", *(word for word in words if word.startswith("--config."))]
    config_flags.DEFINE_config_file("config", None, "", values, lock_config=True, sys_argv=arguments)
    values(arguments)
    assert common(values.config, run.points()) == run.wanted()


def test_a_mean_of_restarts(scale: Scale, places: Places, library: Callable[[], Library]) -> None:
    write_training(scale.runs["base"], in_runs(places), {"mlm_loss": 1.4, "perplexity": 4.06})
    scores = [0.84, 0.85, 0.86, 0.85, 0.85]
    write_sweep(scale.runs["base-mrpc"], in_runs(places), "score", [{"score": 0.1, "accuracy": s} for s in scores])
    lines = {(one.line.row, one.line.column): one for one in fill(scale.tables["6"], library())}
    found = lines["L 12, H 768, A 12", "MRPC"].found
    assert found is not None and found.spread is not None
    assert (found.value, len(found.values), found.points, found.seconds) == (pytest.approx(85.0), 5, 5, 300.0)
    assert found.spread == pytest.approx(0.5**0.5)  # (1 + 1) / 4, in points
    assert found.hardware == "Some CPU, 2 cores"
    perplexity = lines["L 12, H 768, A 12", "perplexity"].found
    assert perplexity is not None and (perplexity.value, perplexity.spread) == (4.06, None)
    assert perplexity.seconds == 3600.0
    assert sum(one.found is not None for one in lines.values()) == 2
    text = page("6", scale, library(), places, markdown=False)
    row = next(line for line in text.splitlines() if "MRPC" in line and "measured" in line)
    assert row.split("  ")[0] == "L 12, H 768, A 12"
    assert [part.strip() for part in re.split(r"\s{2,}", row)[2:8]] == [
        "86.7",
        "85.0",
        "-1.7",
        "±0.71",
        "5",
        "measured",
    ]
    assert text.count("not run") == 22 and "est." in text


def test_the_best_of_a_grid_beside_a_test_set(scale: Scale, places: Places, library: Callable[[], Library]) -> None:
    write_training(scale.runs["base"], in_runs(places), {"mlm_loss": 1.4})
    scores = [0.8 + 0.01 * number for number in range(12)]  # four rates with three seeds each, in this order
    results = [{"score": s, "f1": s - 0.5 if number == 11 else s} for number, s in enumerate(scores)]
    write_sweep(scale.runs["base-mrpc-grid"], in_runs(places), "score", results)
    cell = scale.tables["1"].cells["BERT-BASE", "MRPC"]
    found = measure(cell, library())
    assert found is not None and (len(found.values), found.points) == (3, 12)
    assert found.value == pytest.approx(41.0)  # the f1 of the run with the best score, not the best f1
    text = page("1", scale, library(), places, markdown=False)
    row = next(line for line in text.splitlines() if "measured" in line)
    assert re.split(r"\s{2,}", row)[:5] == ["BERT-BASE", "MRPC", "88.9", "41.0 (dev)", "±28.01"]  # no difference


def test_test_figures_are_of_the_setting_that_is_best_on_dev(
    scale: Scale, places: Places, library: Callable[[], Library]
) -> None:
    write_training(scale.runs["base-cased"], in_runs(places), {"mlm_loss": 1.4})
    grid, runs = "base-cased-ner-grid", in_runs(places)
    rates = [90.0] * 5 + [92.0, 94.0, 93.0, 93.0, 93.0] + [91.0] * 5
    write_sweep(scale.runs[grid], runs, "f1", [{"f1": value} for value in rates])
    cells = scale.tables["7"].cells
    dev, row = measure(cells["BERT-BASE, fine-tuning", "dev"], library()), ("BERT-BASE, fine-tuning", "test")
    assert dev is not None and dev.value == pytest.approx(93.0) and (len(dev.values), dev.points) == (5, 15)
    assert measure(cells[row], library()) is None
    write_sweep(scale.runs[f"{grid}-test"], runs, "f1", [{"f1": v} for v in [99.0] * 5 + [80.0] * 5 + [70.0] * 5])
    test = measure(cells[row], library())
    assert test is not None and test.value == pytest.approx(80.0)


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    results = json.loads(path.read_text())
    change(results)
    path.write_text(json.dumps(results))


FIRST = "seed=0"
REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "batch": (
        lambda r: r["config"].update(batch_size=8),
        r"is of another config than base-mrpc \(batch_size: 32 -> 8\)",
    ),
    "start": (lambda r: r["config"].update(init_from="/x/large"), r"\(init_from: 'base' -> 'large'\); it is not used"),
    "two": (lambda r: r["config"].update(seed=1, batch_size=8), r"\(batch_size: 32 -> 8 and 1 more\)"),
    "code": (lambda r: r["points"][FIRST]["environment"].pop("code"), r"does not say environment.code of seed=0; make"),
    "data": (lambda r: r["points"][FIRST].pop("data"), "does not say data of seed=0"),
    "figure": (lambda r: r["points"][FIRST]["result"].pop("score"), "does not say result.score of seed=0"),
    "point": (lambda r: r["points"][FIRST]["point"].update(seed=7), r"has a point that is not base-mrpc's \(seed=0\)"),
    "empty": (lambda r: r.pop("points"), "is damaged"),
    "form": (lambda r: r["points"][FIRST].update(result=[]), "is damaged"),
    "nan": (lambda r: r["points"][FIRST]["result"].update(score=float("nan")), "does not say result.score"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(
    change: Callable[[dict[str, Any]], Any],
    message: str,
    scale: Scale,
    places: Places,
    library: Callable[[], Library],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_training(scale.runs["base"], in_runs(places), {"mlm_loss": 1.4})
    path = write_sweep(scale.runs["base-mrpc"], in_runs(places), "score", [{"score": 0.8, "accuracy": 0.8}] * 5)
    edited(path, change)
    found = library()
    assert found.find("base-mrpc") is None and re.search(message, found.refused["base-mrpc"])
    assert "\n" not in found.refused["base-mrpc"]
    with pytest.raises(SystemExit, match=message):
        main(["--table", "6", "--collect", "--runs", places.runs, "--results", f"{places.runs}/kept"])
    assert not Path(f"{places.runs}/kept/base-mrpc.json").exists()


def test_where_a_run_lay_and_how_it_went_on_is_free(
    scale: Scale, places: Places, library: Callable[[], Library]
) -> None:
    write_training(scale.runs["base"], in_runs(places), {"mlm_loss": 1.4})
    path = write_sweep(scale.runs["base-mrpc"], in_runs(places), "score", [{"score": 0.8, "accuracy": 0.8}] * 5)
    elsewhere = {"data_dir": "/elsewhere", "init_from": "/elsewhere/base", "eval_every_steps": 7, "keep_last": 3}
    edited(path, lambda r: r["config"].update(elsewhere | {"mesh": {"data": 8, "fsdp": 1, "tensor": 1}}))
    assert library().find("base-mrpc") is not None


def test_what_is_not_finished_or_began_with_nothing(
    scale: Scale, places: Places, library: Callable[[], Library]
) -> None:
    runs = in_runs(places)
    write_sweep(scale.runs["base-mrpc"], runs, "score", [{"score": 0.8}] * 5)
    found = library()
    assert found.find("base-mrpc") is None
    assert found.refused["base-mrpc"].endswith("no results of base, with which it began; it is not used")
    folder = write_training(scale.runs["base"], runs, None)
    found = library()
    assert found.find("base") is None and not found.refused
    assert found.unfinished == {"base": f"{folder} is not finished (step 100); the same command goes on"}
    write_sweep(scale.runs["base-qnli"], runs, "score", [{"score": 0.8}] * 4)
    assert found.find("base-qnli") is None
    assert found.unfinished["base-qnli"].endswith("1 of 5 points are not finished; the same command goes on")


def test_collected_results_fill_the_table_elsewhere(
    scale: Scale, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, kept = in_runs(places), tmp_path / "kept"
    write_training(scale.runs["base"], runs, {"mlm_loss": 1.4, "perplexity": 4.06})
    write_sweep(scale.runs["base-mrpc"], runs, "score", [{"score": 0.8, "accuracy": 0.8}] * 5)
    main(["--table", "6", "--collect", "--runs", places.runs, "--results", str(kept)])
    assert capsys.readouterr().out == f"2 results -> {kept}\n"
    assert sorted(path.name for path in kept.iterdir()) == ["base-mrpc.json", "base.json"]
    for path in kept.iterdir():
        assert str(tmp_path) not in path.read_text()
    assert json.loads((kept / "base-mrpc.json").read_text())["config"]["init_from"] == "base"
    main(["--table", "6", "--markdown", "--runs", str(tmp_path / "nowhere"), "--results", str(kept)])
    text = capsys.readouterr().out
    assert "| L 12, H 768, A 12 | MRPC | 86.7 | 80.0 | -6.7 | ±0.00 | 5 | measured |" in text
    assert "| L 12, H 768, A 12 | perplexity | 3.99 | 4.06 | +0.07 |  | 1 | measured |" in text
    (kept / "base.json").write_text("{")
    main(["--table", "6", "--runs", str(tmp_path / "nowhere"), "--results", str(kept)])
    text = capsys.readouterr().out
    assert "base.json is damaged" in text and "measured" not in text


def test_commands_are_in_order_and_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--table", "5", "--commands"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines)) == 24  # a corpus, three models, 4 x 5 fine-tunings
    assert lines[0].startswith("test -e runs/paper/corpus/corpus.json || python -m experiments.build_corpus")
    for line in lines:
        for start in re.findall(r"--config\.(?:init_from|corpus)=(\S+)", line):
            assert any(
                before.endswith((f"--workdir {start}", f"--output {start}")) for before in lines[: lines.index(line)]
            )
    main(["--commands"])
    everything = capsys.readouterr().out.splitlines()
    assert len(everything) == len(set(everything)) > 100 and set(lines) <= set(everything)
    with pytest.raises(SystemExit, match="error: --table=9 is unknown; take one of 1, 2"):
        main(["--table", "9"])


def test_other_systems_have_the_paper_s_figures_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["--table", "2", "--runs", str(tmp_path), "--results", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert "Of another system, by the paper: Human: test EM 82.3; test F1 91.2" in lines
    assert sum(line.startswith("Of another system") for line in lines) == 5
    ensemble = next(line for line in lines if line.startswith("BERT-LARGE, ensemble "))
    assert re.split(r"\s{2,}", ensemble) == ["BERT-LARGE, ensemble", "dev EM", "85.8", "not run", "none"]
    assert any("no program here averages seven systems" in line for line in lines)
    table = [line for line in lines if re.search("not run|^row ", line)]
    assert len(table) == 1 + 14 and max(map(len, table)) <= 160
    assert all(head in table[0] for head in HEADER)


def test_the_order_of_rows_by_hand() -> None:
    paper = Published("A table", ("a", "loss"), {"x": (1.0, 3.0), "y": (2.0, 1.0), "z": (2.0, 2.0), "w": (None, None)})
    cells = {(row, column): Cell("run", "f1") for row in "xyzw" for column in paper.columns}
    table = Table(paper, cells, lower_is_better=("loss",))
    lines = fill(table, Library({"run": Run("run", "nothing")}, "nowhere", "nowhere"))
    assert orders(table, lines, "a", theirs=True) == {"x": "3 of 3", "y": "1 of 3", "z": "1 of 3"}
    assert orders(table, lines, "loss", theirs=True) == {"x": "3 of 3", "y": "1 of 3", "z": "2 of 3"}
    assert orders(table, lines, "a", theirs=False) == {}


def test_the_small_tables_show_orders_and_no_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = Places(str(tmp_path / "runs"), "data", "")
    scale, runs = small.scale(places), tmp_path / "runs"
    for name, loss, spearman in (("base", 5.0, 0.3), ("no_nsp", 4.9, 0.4), ("ltr", 6.0, 0.2)):
        write_training(scale.runs[name], runs, {"mlm_loss": loss})
        write_sweep(scale.runs[f"{name}-sts-b"], runs, "score", [{"score": 0.0, "spearman": spearman}] * 3)
    given = ["--scale", "small", "--runs", places.runs, "--results", str(tmp_path / "kept")]
    main(["--table", "5", *given])
    lines = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    rows = {tuple(line[:2]): line for line in lines if "scaled down" in line or "not run" in line}
    assert rows["BERT-BASE", "STS-B"][2:9] == ["30.0", "±0.00", "3", "2 of 3", "1 of 3", "86.7", "scaled down"]
    assert rows["LTR & No NSP", "STS-B"][2:9] == ["20.0", "±0.00", "3", "3 of 3", "3 of 3", "77.5", "scaled down"]
    assert rows["No NSP", "held-out loss"][2:5] == ["4.9", "1", "scaled down"]  # no order
    assert rows["SOP instead of NSP", "STS-B"][2] == "not run"
    main(["--plan", *given])
    plan = capsys.readouterr().out
    assert 1.0 < sum(seconds(r, scale.runs, scale.data_sets, scale.machine) for r in scale.runs.values()) / 3600 < 2.0
    assert "base-sts-b" in plan and f"{len(scale.runs)} runs" in plan


def test_estimates_by_hand() -> None:
    runs = SCALES["paper"].runs
    model: Any = runs["base"].config().model
    # 12 d^2 parameters in each of 12 layers: 85 million; 6 FLOP each, attention 12 l d t, and 15 % of the output layer.
    (steps, flop), (more, longer) = pretraining_work(runs["base"].config(), 30_000)
    token = 6 * 12 * 12 * 768**2 + 12 * 12 * 768 * 128 + 6 * 0.15 * 768 * (768 + 30_000)
    assert (steps, more) == (900_000, 100_000) and flop == pytest.approx(256 * 128 * token)
    assert longer > 4 * flop
    steps, flop = fine_tuning_work(runs["base-mnli"].config(), model, DataSet(320, 10))
    assert steps == 30.0 and flop == pytest.approx(32 * 10 * (6 * 12 * 12 * 768**2 + 12 * 12 * 768 * 10))
    assert bilstm_parameters(2, 3) == 2 * 4 * 3 * (5 + 9)
    assert SCALES["paper"].machine.count == 8 and isinstance(SCALES["small"].machine, Machine)
    assert {run.program for run in runs.values()} == {TRAIN, SWEEP, "build_corpus", "import_checkpoint"}
