"""The runs of the paper's tables at its own size: corpora, models from scratch, fine-tunings."""

from __future__ import annotations

from typing import Any

from experiments.paper_tables.published import FEATURES, PUBLISHED, masking
from experiments.paper_tables.run import SWEEP, TRAIN, Places, Run

# GLUE's columns: task of configs/glue.py, figure that the paper gives in Table 1.
TASKS = {
    "MNLI-m": ("mnli", "accuracy"),
    "QQP": ("qqp", "f1"),
    "QNLI": ("qnli", "accuracy"),
    "SST-2": ("sst-2", "accuracy"),
    "CoLA": ("cola", "matthews"),
    "STS-B": ("sts-b", "spearman"),
    "MRPC": ("mrpc", "f1"),
    "RTE": ("rte", "accuracy"),
}
ABLATIONS = {"BERT-BASE": "base", "No NSP": "no_nsp", "LTR & No NSP": "ltr", "+ BiLSTM": "ltr-bilstm"}
SIZES = {
    "L 3, H 768, A 12": "L3_H768_A12",
    "L 6, H 768, A 3": "L6_H768_A3",
    "L 6, H 768, A 12": "L6_H768_A12",
    "L 12, H 768, A 12": "base",
    "L 12, H 1024, A 16": "L12_H1024_A16",
    "L 24, H 1024, A 16": "large",
}
CURVES = {"masked LM": "base", "left-to-right": "ltr"}


def pretraining(places: Places) -> list[Run]:
    """The corpora, and every model from scratch."""
    every: dict[str, Any] = {"keep_last": 100}  # Figure 5 begins with checkpoints on the way, 10,000 steps apart
    sizes = [size for size in SIZES.values() if size not in ("base", "large")]
    return [
        corpus(places, "corpus", "--lowercase"),
        corpus(places, "corpus-cased"),
        model(places, "base", "size=base", **every),
        model(places, "large", "size=large"),
        model(places, "no_nsp", "size=base,objective=mlm"),
        model(places, "ltr", "size=base,objective=ltr", **every),
        *(model(places, size, f"size={size}") for size in sizes),
        *(model(places, name, f"size=base,masking={own}") for name, own in maskings().items() if name != "base"),
        model(places, "base-cased", "size=base", "corpus-cased"),
        model(places, "large-cased", "size=large", "corpus-cased"),
    ]


def corpus(places: Places, name: str, *case: str) -> Run:
    output = f"{places.runs}/{name}"
    arguments = ("--input", places.text, "--vocab_size", "30522", *case, "--output", output)
    return Run(name, "build_corpus", arguments=arguments, makes=f"{output}/corpus.json")


def model(places: Places, name: str, choices: str, text: str = "corpus", **changes: Any) -> Run:
    where = {"corpus": f"{places.runs}/{text}"}
    return Run(name, TRAIN, f"pretrain.py:{choices}", where | changes, after=(text,))


def fine_tuning(places: Places) -> list[Run]:
    """Every sweep, and the checkpoints on the way of Figure 5."""
    return [*headlines(places), *ablations(places), *named_entities(places), *curves(places)]


def headlines(places: Places) -> list[Run]:
    """Tables 1 to 4: BASE and LARGE."""
    runs = []
    for size in ("base", "large"):
        for task, _ in TASKS.values():
            runs.append(tuned(places, f"{size}-{task}-grid", size, f"glue.py:task={task}", "glue", task))
        runs.append(squad(places, size, size, "1.1"))
        runs.append(tuned(places, f"{size}-swag", size, "restarts.py:recipe=swag", "swag", "swag"))
    trivia = {"data_dir": f"{places.data}/squad", "init_from": f"{places.runs}/large", "model.dtype": "bfloat16"}
    recipe = "squad.py:version=1.1,stage=triviaqa"
    return [
        *runs,
        Run("large-triviaqa", TRAIN, recipe, trivia, after=("large",), learns_from="triviaqa"),
        squad(places, "large-triviaqa", "large-triviaqa", "1.1"),
        squad(places, "large", "large", "2.0"),
    ]


def ablations(places: Places) -> list[Run]:
    """Tables 5 and 6, and MNLI of Table 8."""
    runs = []
    for name in ABLATIONS.values():
        start, changes = name.removesuffix("-bilstm"), {"bilstm_size": 768} if name.endswith("-bilstm") else {}
        runs += [glue(places, name, start, task, **changes) for task in ("mnli", "qnli", "mrpc", "sst-2")]
        runs += [squad(places, name, start, "1.1", **changes)] if name != "base" else []  # that is Table 2's
    for size in SIZES.values():
        runs += [glue(places, size, size, task) for task in ("mnli", "mrpc", "sst-2") if size != "base"]
    return runs + [glue(places, start, start, "mnli") for start in maskings() if start != "base"]


def named_entities(places: Places) -> list[Run]:
    """Table 7, and Table 8's columns of NER."""
    grid, data = "ner.py:data=conll2003", "data=conll2003"
    runs = []
    for size in ("base", "large"):
        name, start = f"{size}-cased-ner-grid", f"{size}-cased"
        runs += [ner(places, name, start, grid), ner(places, f"{name}-test", start, grid, dev="eng.testb")]
    layers = {"stored_layers": tuple(range(13)), "features_dir": f"{places.runs}/base-cased-features"}
    for kind in FEATURES.values():
        runs.append(ner(places, f"base-cased-{kind}", "base-cased", f"features.py:{data},features={kind}", **layers))
    for start in maskings():
        runs.append(ner(places, f"{start}-ner", start, f"restarts.py:recipe=ner,{data}"))
        recipe, where = f"features.py:{data},features=concat_last_four", f"{places.runs}/{start}-features"
        runs.append(ner(places, f"{start}-concat_last_four", start, recipe, features_dir=where))
    return runs


def curves(places: Places) -> list[Run]:
    """Figure 5: a checkpoint on the way becomes a model of its own, and that is fine-tuned."""
    runs = []
    for start in CURVES.values():
        for thousands in thousand_steps():
            name = f"{start}-{thousands}k"
            output = f"{places.runs}/{name}"
            arguments = ("--source", f"{places.runs}/{start}", "--step", f"{thousands}000", "--output", output)
            runs.append(Run(name, "import_checkpoint", arguments=arguments, makes=output, after=(start,)))
            runs.append(glue(places, name, name, "mnli"))
    return runs


def tuned(places: Places, name: str, start: str, recipe: str, data: str, of: str, **changes: Any) -> Run:
    """A sweep that begins with the run ``start``, on the folder ``data``."""
    begin = {"data_dir": f"{places.data}/{data}", "init_from": f"{places.runs}/{start}", "model.dtype": "bfloat16"}
    return Run(name, SWEEP, recipe, begin | changes, after=(start,), learns_from=of)


def glue(places: Places, name: str, start: str, task: str, **changes: Any) -> Run:
    recipe = f"restarts.py:recipe=glue,task={task}"
    return tuned(places, f"{name}-{task}", start, recipe, "glue", task, **changes)


def squad(places: Places, name: str, start: str, version: str, **changes: Any) -> Run:
    recipe, of = f"restarts.py:recipe=squad,version={version}", f"squad{version[0]}"
    return tuned(places, f"{name}-{of}", start, recipe, "squad", of, **changes)


def ner(places: Places, name: str, start: str, recipe: str, **changes: Any) -> Run:
    return tuned(places, name, start, recipe, "conll2003", "conll2003", **changes)


def maskings() -> dict[str, str]:
    """Pre-training run -> its choice of masking; the paper's own is BASE."""
    names = [masking(row) for row in PUBLISHED["8"].rows]
    return {("base" if number == 0 else f"masking-{name}"): name for number, name in enumerate(names)}


def thousand_steps() -> list[int]:
    """Of Figure 5's points, but for the last, which is the finished run."""
    return [int(column.removesuffix("k")) for column in PUBLISHED["figure5"].columns[:-1]]
