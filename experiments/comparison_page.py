"""The page of ``compare_pretraining``: ``pretraining_comparison.json``, ``.svg`` and ``.md`` in one directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "pretraining_comparison"
LABELS = {"ours": "bert_jax", "peer": "PyTorch transformers"}
COLOURS = {"ours": "#1f6feb", "peer": "#d9730d"}


def write_page(results: dict[str, Any], directory: Path) -> None:
    """Writes figures, plot and page."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{NAME}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    _plot(results, directory / f"{NAME}.svg")
    (directory / f"{NAME}.md").write_text(page(results), encoding="utf-8")


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    config, corpus, machine = results["config"], results["corpus"], results["machine"]
    ours, peer, model = results["ours"], results["peer"], results["config"]["model"]
    tokens = config["batch_size"] * config["max_seq_length"] * config["train_steps"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    rows = [
        ("held-out masked-LM loss (nats)", "mlm_loss", ".4f"),
        ("held-out masked-LM accuracy", "mlm_accuracy", ".2%"),
        ("held-out next-sentence accuracy", "nsp_accuracy", ".2%"),
        ("training time (s)", "seconds", ",.1f"),
        ("the same with the first step, which compiles (s)", "seconds_with_first_step", ",.1f"),
        ("seconds a step, mean", "seconds_per_step", ".4f"),
        ("seconds a step, median of the slices", "seconds_per_step_median", ".4f"),
    ]
    table = "\n".join(f"| {title} | {ours[key]:{form}} | {peer[key]:{form}} |" for title, key, form in rows)
    train, held_out = corpus["splits"]["train"], corpus["splits"]["held_out"]
    difference = abs(results["initial"]["mlm_loss"] - peer["initial"]["mlm_loss"])
    shape = f"{config['batch_size']} x {config['max_seq_length']}"
    return f"""# Pre-training beside PyTorch

    {results["command"]}

{model["num_hidden_layers"]} layers x {model["hidden_size"]}, {config["train_steps"]:,} steps of {shape}
({tokens:,} token places), peak learning rate {config["optimizer"]["learning_rate"]:g},
warm-up {config["warmup_steps"]} steps, float32. Both start from the same weights and see the same batches and
masks; both use AdamW with the same clipping and schedule, and dropout 0.1. They take turns every
{config["eval_every_steps"]} steps on one machine, and only training is on the clock. Ours includes reading and
assembling the batches, masking, logging and checkpoints; the peer's batches lie ready. The peer computes logits
at every position, as `BertForPreTraining` does. Ours keeps its memory in huge pages (`experiments/program.py`), as all
our training programs do; the peer runs as its users run it.

| | {LABELS["ours"]} | {LABELS["peer"]} |
|---|---|---|
{table}

Loss: {results["loss_ratio"]:.4f} of the peer's. Time: the peer takes {results["time_ratio"]:.2f} times as long. For
comparison, predicting by word frequency alone gives {results["initial"]["unigram_loss"]:.4f} nats. Before the first
step the two models, computing with the same weights, differ by {difference:.1e} nats.

![Held-out masked-LM loss by step and by training time]({NAME}.svg)

Corpus: {train["documents"]:,} documents, {train["tokens"]:,} tokens for training,
{held_out["documents"]:,} documents held out, of which at most {config["eval_examples"]} examples are evaluated;
SHA-256 of its contents `{corpus["content_sha256"]}`.

Machine: {machine["processor"]}, {machine["cores"]} cores, {machine["memory_gb"]} GB; Python {machine["python"]};
{versions}.
"""


def _plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style: dict[Any, Any] = {"svg.hashsalt": NAME, "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    style["axes.spines.right"] = False
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
        for axis, key, label in zip(axes, ("step", "seconds"), ("step", "training time (s)"), strict=True):
            for name in ("ours", "peer"):
                curve = results[name]["curve"]
                x, y = [point[key] for point in curve], [point["mlm_loss"] for point in curve]
                axis.plot(x, y, color=COLOURS[name], label=LABELS[name], linewidth=1.5)
            axis.axhline(results["initial"]["unigram_loss"], color="#888888", linewidth=1, linestyle="--")
            axis.set_xlabel(label)
            axis.grid(alpha=0.25)
        axes[0].set_ylabel("held-out masked-LM loss (nats)")
        axes[0].legend(frameon=False)
        axes[1].annotate("unigram", (0, results["initial"]["unigram_loss"]), fontsize=8, va="bottom", color="#555555")
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
