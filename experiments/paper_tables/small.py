"""The tables at a laptop's size: the same rows, on the text and the tasks at hand.

BASE is two layers of 128, LARGE four of 160; all learn for the same steps from the same text. What the paper does not
have is added to Table 5: sentence order instead of next sentence prediction, and a left-to-right and a right-to-left
model side by side, as ELMo's, which the paper describes and sets aside (section 5.1).
"""

from __future__ import annotations

from typing import Any

from configs.laptop import STEPS
from experiments.paper_tables.cell import Cell, Cells, Scale, Table
from experiments.paper_tables.estimates import DataSet, Machine
from experiments.paper_tables.full_runs import CURVES, maskings
from experiments.paper_tables.published import FEATURES, PUBLISHED
from experiments.paper_tables.run import SWEEP, TRAIN, Places, Run

SOP, SIDES = "SOP instead of NSP", "LTR and RTL side by side"
ABLATIONS = {
    "BERT-BASE": "base",
    "No NSP": "no_nsp",
    SOP: "sop",
    "LTR & No NSP": "ltr",
    "+ BiLSTM": "ltr-bilstm",
    SIDES: "ltr-rtl",
}
OBJECTIVES = {"base": "mlm_nsp", "no_nsp": "mlm", "sop": "mlm_sop", "ltr": "ltr", "rtl": "rtl"}
# Of one layer no half can be taken: the smallest is half as wide.
SIZES = {
    "L 3, H 768, A 12": "L1_H64_A4",
    "L 6, H 768, A 3": "L1_H128_A1",
    "L 6, H 768, A 12": "L1_H128_A4",
    "L 12, H 768, A 12": "base",
    "L 12, H 1024, A 16": "L2_H160_A5",
    "L 24, H 1024, A 16": "large",
}
LARGE = "L4_H160_A5"
# Figure 5: column -> checkpoint, at these hundredths of the run.
HUNDREDTHS = (10, 20, 40)
# Our task: (folder of its data, figure, factor).
TASKS = {
    "sts-b": ("glue", "spearman", 100.0),
    "qnli": ("glue", "accuracy", 100.0),
    "squad1": ("squad1", "f1", 1.0),
    "squad2": ("squad2", "f1", 1.0),
    "hellaswag": ("hellaswag", "accuracy", 100.0),
    "wnut17": ("wnut17", "f1", 1.0),
}
# Examples for training, and word pieces of one, counted on the files; of questions it is windows.
DATA_SETS = {
    "sts-b": DataSet(4000, 24),
    "qnli": DataSet(2000, 70),
    "squad1": DataSet(2665, 114),
    "squad2": DataSet(2529, 110),
    "hellaswag": DataSet(400, 221),
    "wnut17": DataSet(2000, 38),
}
MACHINE = Machine(
    name="2 CPU cores",
    one="2 CPU cores",
    flops=75e9,
    count=1,
    least_step=0.0,
    start=5.0,
    vocabulary=4096,
    about="arithmetic at 75 GFLOP/s (52 a second of CPU time, as steps of pre-training were timed; 1.5 of 2 cores busy)"
    ", 5 s a point for start and evaluation",
)


def scale(places: Places) -> Scale:
    """All tables and runs."""
    runs = {run.name: run for run in (*preparation(places), *pretraining(places), *fine_tuning(places))}
    return Scale(tables(), runs, DATA_SETS, MACHINE, scaled_down=True)


def preparation(places: Places) -> list[Run]:
    """Splits of the sets, and the corpus."""
    data, corpus = f"{places.runs}/data", f"{places.runs}/corpus"
    arguments = ("--input", f"{data}/text.jsonl", "--vocab_size", "4096", "--held_out", "0.05")
    return [
        Run("data", "small_data", arguments=("--data", places.data, "--output", data), makes=data),
        Run(
            "corpus",
            "build_corpus",
            arguments=(*arguments, "--output", corpus),
            makes=f"{corpus}/corpus.json",
            after=("data",),
        ),
    ]


def pretraining(places: Places) -> list[Run]:
    every = {"checkpoint_every_steps": STEPS // 10, "keep_last": 12}  # Figure 5 begins with those on the way

    def model(name: str, choices: str, **changes: Any) -> Run:
        where = {"corpus": f"{places.runs}/corpus"}
        return Run(name, TRAIN, f"laptop.py:{choices}", where | changes, after=("corpus",))

    sizes = {name: LARGE if name == "large" else name for name in SIZES.values() if name != "base"}
    return [
        *(model(n, f"objective={o}", **(every if n in CURVES.values() else {})) for n, o in OBJECTIVES.items()),
        *(model(name, f"size={size}") for name, size in sizes.items()),
        *(model(name, f"masking={own}") for name, own in maskings().items() if name != "base"),
    ]


def fine_tuning(places: Places) -> list[Run]:
    """Every sweep, and the checkpoints on the way of Figure 5."""
    runs = [tuned(places, "base", task) for task in TASKS if task != "squad2"]
    for name in list(ABLATIONS.values())[1:]:
        runs += [tuned(places, name, task) for task in ("qnli", "sts-b", "squad1")]
    for name in SIZES.values():
        runs += [tuned(places, name, task) for task in ("qnli", "sts-b") if name != "base"]
    runs += [tuned(places, "large", task) for task in ("squad1", "squad2", "hellaswag", "wnut17")]
    runs += [features(places, "large", kind) for kind in FEATURES.values()]
    for name in maskings():
        runs += [tuned(places, name, task) for task in ("qnli", "wnut17") if name != "base"]
        runs.append(features(places, name, "weighted_sum_all"))
    for start in CURVES.values():
        for hundredths in HUNDREDTHS:
            name, output = f"{start}-{hundredths}", f"{places.runs}/{start}-{hundredths}"
            step = ("--step", str(STEPS * hundredths // 100), "--output", output)
            arguments = ("--source", f"{places.runs}/{start}", *step)
            runs.append(Run(name, "import_checkpoint", arguments=arguments, makes=output, after=(start,)))
            runs.append(tuned(places, name, "sts-b"))
    return runs


def tuned(places: Places, name: str, task: str) -> Run:
    """A sweep that begins with the model that ``name`` says, by itself or in a row of Table 5."""
    starts = ("ltr", "rtl") if name == "ltr-rtl" else (name.removesuffix("-bilstm"),)
    begin: dict[str, Any] = {"data_dir": f"{places.runs}/data/{TASKS[task][0]}"}
    begin |= {"init_from": f"{places.runs}/{starts[0]}"}
    if name == "ltr-rtl":
        begin |= {"concatenated": True, "right_to_left_from": f"{places.runs}/rtl"}
    if name.endswith("-bilstm"):
        begin |= {"bilstm_size": 128}
    return sweep(f"{name}-{task}", f"laptop_tasks.py:task={task}", begin, starts, task)


def features(places: Places, start: str, kind: str) -> Run:
    """A sweep on frozen features of WNUT-17; rows of one model share what is stored."""
    where: dict[str, Any] = {"data_dir": f"{places.runs}/data/wnut17", "init_from": f"{places.runs}/{start}"}
    where |= {"features_dir": f"{places.runs}/{start}-features"}
    if start == "large":
        where |= {"stored_layers": tuple(range(5))}
    recipe = f"laptop_tasks.py:task=wnut17,features={kind}"
    return sweep(f"{start}-{kind}", recipe, where, (start,), "wnut17")


def sweep(name: str, recipe: str, changes: dict[str, Any], starts: tuple[str, ...], task: str) -> Run:
    """All seeds as one program, which takes less time and changes no result but by rounding."""
    after, together = (*starts, "data"), ("--together", "3")
    return Run(name, SWEEP, recipe, changes, arguments=together, after=after, learns_from=task)


def score(run: str, task: str) -> Cell:
    _, figure, factor = TASKS[task]
    return Cell(f"{run}-{task}", figure, factor)


def tables() -> dict[str, Table]:
    """By the paper's numbers."""
    rows = {"BERT-BASE": "base", "BERT-LARGE": "large"}
    glue = {(row, c): score(run, c.lower()) for row, run in rows.items() for c in ("QNLI", "STS-B")}
    squad: Cells = {}
    for row, run in rows.items():
        squad[row, "dev EM"] = Cell(f"{run}-squad1", "exact_match")
        squad[row, "dev F1"] = Cell(f"{run}-squad1", "f1")
    unanswerable = {("BERT-LARGE", "dev EM"): Cell("large-squad2", "exact_match")}
    unanswerable |= {("BERT-LARGE", "dev F1"): Cell("large-squad2", "f1")}
    choice = {(row, "dev"): score(run, "hellaswag") for row, run in rows.items()}
    return {
        "1": Table(PUBLISHED["1"], glue, notes=("Development sets of our splits; the paper's are of the test sets.",)),
        "2": Table(PUBLISHED["2"], squad),
        "3": Table(PUBLISHED["3"], unanswerable),
        "4": Table(PUBLISHED["4"], choice, notes=("HellaSwag instead of SWAG; chance is 25.",)),
        "5": Table(PUBLISHED["5"], table5(), {"STS-B": "MRPC"}, notes=NOTES["5"]),
        "6": Table(PUBLISHED["6"], table6(), {"QNLI": "MNLI-m", "STS-B": "MRPC"}, ("perplexity",), NOTES["6"]),
        "7": Table(PUBLISHED["7"], table7(), {"WNUT-17 dev": "dev"}, notes=NOTES["7"]),
        "8": Table(PUBLISHED["8"], table8(), STANDS_FOR_8, notes=NOTES["8"]),
        "figure5": Table(PUBLISHED["figure5"], figure5(), STANDS_FOR_5, notes=NOTES["figure5"]),
    }


STANDS_FOR_8 = {"QNLI": "MNLI", "WNUT-17 fine-tuned": "NER fine-tuned", "WNUT-17 features": "NER features"}
STANDS_FOR_5 = {"10 %": "100k", "20 %": "200k", "40 %": "400k", "100 %": "1000k"}


def table5() -> Cells:
    cells: Cells = {}
    for row, name in ABLATIONS.items():
        if name in OBJECTIVES:
            cells[row, "held-out loss"] = Cell(name, "mlm_loss")
        for column, task in (("QNLI", "qnli"), ("STS-B", "sts-b"), ("SQuAD F1", "squad1")):
            cells[row, column] = score(name, task)
    return cells


def table6() -> Cells:
    cells: Cells = {}
    for row, name in SIZES.items():
        cells[row, "perplexity"] = Cell(name, "perplexity")
        cells[row, "QNLI"], cells[row, "STS-B"] = score(name, "qnli"), score(name, "sts-b")
    return cells


def table7() -> Cells:
    column = "WNUT-17 dev"
    cells = {("BERT-LARGE, fine-tuning", column): score("large", "wnut17")}
    cells |= {("BERT-BASE, fine-tuning", column): score("base", "wnut17")}
    return cells | {(row, column): Cell(f"large-{kind}", "f1") for row, kind in FEATURES.items()}


def table8() -> Cells:
    cells: Cells = {}
    for row, name in zip(PUBLISHED["8"].rows, maskings(), strict=True):
        cells[row, "held-out loss"] = Cell(name, "mlm_loss")
        cells[row, "QNLI"], cells[row, "WNUT-17 fine-tuned"] = score(name, "qnli"), score(name, "wnut17")
        cells[row, "WNUT-17 features"] = Cell(f"{name}-weighted_sum_all", "f1")
    return cells


def figure5() -> Cells:
    cells: Cells = {}
    for row, name in CURVES.items():
        for hundredths in HUNDREDTHS:
            cells[row, f"{hundredths} %"] = score(f"{name}-{hundredths}", "sts-b")
        cells[row, "100 %"] = score(name, "sts-b")
    return cells


NOTES = {
    "5": (
        "Held-out losses are of what each model predicts: left-to-right models every token, the others the masked ones;"
        " only those of one kind can be compared. STS-B stands beside the paper's MRPC.",
    ),
    "6": (
        "The paper's sizes stand for layers x width of 1 x 64, 1 x 128 (one head), 1 x 128, 2 x 128, 2 x 160, 4 x 160."
        " QNLI stands beside the paper's MNLI, STS-B beside its MRPC.",
    ),
    "7": ("WNUT-17 instead of CoNLL-2003, sentence by sentence; features of LARGE, whose layers are four.",),
    "8": (
        "Held-out losses are of text that is masked as each was trained on. Features: the weighted sum of both layers.",
    ),
    "figure5": (
        "STS-B instead of MNLI, after so many hundredths of the steps: a point is fine-tuned from that checkpoint of"
        " one run, whose learning rate goes on falling.",
    ),
}
