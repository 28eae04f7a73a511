"""The page of one run: what it reached, how it got there, what it says, where it errs and what it looks at."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.predict import Filling, Predictor
from bert_jax.report.attention import attention_view, short_text
from bert_jax.report.charts import Level, Series, line_chart
from bert_jax.report.elements import card, details, duration, header, percent, section, short, table_head, table_row
from bert_jax.report.figures import FINE_TUNED, HIDDEN, SHARE, figure_of
from bert_jax.report.masked_accuracy import accuracy_charts, accuracy_of_run
from bert_jax.report.mistakes import mistakes
from bert_jax.report.run import Run
from bert_jax.report.samples import GENERAL, Sample, held_out_samples, known

SHOWN, RANKED = 5, 100
OBJECTIVES = {
    "mlm_nsp": "masked LM and next sentence",
    "mlm_sop": "masked LM and sentence order",
    "mlm": "masked LM",
    "ltr": "left-to-right LM",
    "rtl": "right-to-left LM",
}


def run_page(run: Run, model: Predictor | None, sentences: Sequence[Sample] = ()) -> str:
    """The body of the page.

    Args:
        model: the newest checkpoint; None: there is none yet, and everything else is shown.
        sentences: to fill the masks of, before the held-out sentences that are shown anyway.

    Raises:
        ValueError: a sentence without [MASK] or too long for the model.
    """
    held_out = []
    if model is not None and "mlm_head" in model.params:
        held_out = held_out_samples(run.config.get("corpus"), model.tokenizer, model.config.max_position_embeddings)
    return "".join(
        (
            run_header(run),
            headline(run, model),
            section("How it learned", f'<div class="charts">{"".join(charts(run))}</div>'),
            predictions(model, sentences, held_out),
            where_right(run, model),
            section("Where it errs", found) if (found := mistakes(run.evaluation)) else "",
            what_it_looks_at(run, model, [*sentences, *held_out]),
            data_card(run),
            section(
                "How it was run",
                details("Configuration", run.config)
                + details("Model", run.model)
                + details("Environment", run.environment),
            ),
        )
    )


def run_header(run: Run) -> str:
    """Name, what was trained, and whether the run is complete."""
    planned = run.planned_steps
    if planned is None:
        status = f'<span class="status">{run.step:,} steps</span>'
    elif run.step >= planned:
        status = f'<span class="status">Complete: {run.step:,} steps</span>'
    else:
        status = f'<span class="status open">So far {run.step:,} of {planned:,} steps</span>'
    facts = [status]
    if run.model:
        layers, hidden = run.model.get("num_hidden_layers"), run.model.get("hidden_size")
        facts.append(f"BERT of {layers} layers × {hidden}")
    objective = run.config.get("objective")
    facts.append(escape(OBJECTIVES.get(str(objective), objective and str(objective)) or run.task))
    if run.config.get("init_from"):
        facts.append(f"begun from {escape(Path(run.config['init_from']).name)}")
    if run.last_time:
        facts.append(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.last_time)))
    return header(run.name, facts)


def headline(run: Run, model: Predictor | None) -> str:
    """The figures that a reader looks for first."""
    shown = run.last_evaluation
    lead = lead_figure(run)
    cards = [lead] if lead else []
    for name, value in shown.items():
        if name in HIDDEN or (lead and name == next((f for f in FINE_TUNED if f in shown), "")):
            continue
        if not name.endswith("_loss"):
            title, note, write = figure_of(name)
            cards.append(card(title, write(value), note))
    if run.tokens_per_second:
        cards.append(card("Speed", short(run.tokens_per_second), "tokens a second, median"))
    if run.seconds:
        cards.append(card("Training time", duration(run.seconds), f"{short(run.tokens)} tokens"))
    if model is not None:
        cards.append(card("Parameters", short(model.num_parameters)))
    return f'<dl class="figures">{"".join(cards)}</dl>'


def lead_figure(run: Run) -> str:
    """The loss on held-out text beside what mere frequencies of pieces reach; else the last training loss."""
    loss, unigram = (run.last_evaluation.get(name) for name in ("mlm_loss", "unigram_loss"))
    for name in FINE_TUNED:
        if name in run.last_evaluation:
            title, note, write = figure_of(name)
            return card(title, write(run.last_evaluation[name]), note, lead=True)
    if loss is None:
        steps, losses = run.curve("loss")
        note = f"at step {steps[-1]:,}; nothing was evaluated on held-out text" if steps else ""
        return card("Training loss", f"{losses[-1]:.3f}", note, lead=True) if steps else ""
    if not unigram:
        return card("Held-out masked-LM loss", f"{loss:.3f}", "nats", lead=True)
    share = 1 - loss / unigram
    side = "below" if share >= 0 else "above"
    note = f"nats, {abs(share):.1%} {side} the unigram baseline of {unigram:.3f}"
    bar = f'<span class="bar"><i style="width:{min(loss / unigram, 1):.2%}"></i></span>'
    scale = f'<div class="scale">{bar}<span>0</span><span>unigram {unigram:.3f}</span></div>'
    return card("Held-out masked-LM loss", f"{loss:.3f}", note, lead=True, more=scale)


def charts(run: Run) -> Iterator[str]:
    """The plots that the run has figures for."""

    def chart(title: str, lines: Sequence[tuple[str, str]], write: Callable[[float], str], **options: Any) -> str:
        drawn = [
            Series(label, *run.curve(name), kind="held" if name.startswith("eval/") else "train", marked="/" in name)
            for label, name in lines
        ]
        return line_chart(title, drawn, write=write, changes=run.changes_of_shape, **options)

    def both(name: str) -> list[tuple[str, str]]:
        return [("training", name), ("held out", f"eval/{name}")]

    waits = run.curve("data_wait")[1]
    from_zero, unigram = {"limits": (0.0, None)}, run.last_evaluation.get("unigram_loss")
    baseline = [Level("unigram baseline", unigram)] if unigram else []
    chance, majority = [Level("chance", 0.5)], run.last_evaluation.get("majority_share")
    if not run.curve("mlm_loss")[0]:
        yield chart("Loss", both("loss"), "{:.3f}".format)
    for name in FINE_TUNED:
        if values := run.curve(f"eval/{name}")[1]:
            title, _, write = figure_of(name)
            axis: dict[str, Any] = {"tick": percent} if write is SHARE else {}
            if write is SHARE and max(values) > 0.9:
                axis["limits"] = (None, 1.0)  # there is no more
            if name == "accuracy" and majority:
                axis["levels"] = [Level("most frequent class", majority)]
            yield chart(title, [("development set", f"eval/{name}")], write, **axis)
            break
    yield chart("Masked-LM loss (nats)", both("mlm_loss"), "{:.3f}".format, levels=baseline)
    yield chart("Masked-LM accuracy", both("mlm_accuracy"), "{:.1%}".format, tick=percent, **from_zero)
    yield chart("Next-sentence accuracy", both("nsp_accuracy"), "{:.1%}".format, tick=percent, levels=chance)
    yield chart("Learning rate", [("last", "learning_rate")], "{:.2g}".format, **from_zero)
    yield chart("Speed (tokens a second)", [("last", "tokens_per_second")], "{:,.0f}".format, **from_zero)
    # Nothing to see below a few per cent.
    room = {"limits": (0.0, 1.05 * max([0.05, *waits]))}
    yield chart("Time spent waiting for data", [("last", "data_wait")], "{:.1%}".format, tick=percent, **room)


def predictions(model: Predictor | None, given: Sequence[Sample], held_out: Sequence[Sample]) -> str:
    """Masked sentences with the likeliest fillings."""
    if model is None or "mlm_head" not in model.params:
        return ""
    samples = [*given, *held_out] or [sample for sample in GENERAL if known(sample, model)]
    if not samples:
        return ""
    fillings = model.fill_mask([sample.text for sample in samples], top_k=min(RANKED, model.num_offered))
    names = {"[MASK]", model.tokenizer.pieces[model.tokenizer.mask_id]}
    mask = re.compile("|".join(map(re.escape, names)))
    shown = "".join(prediction(*pair, mask) for pair in zip(samples, fillings, strict=True))
    about = f"The likeliest pieces for each mask, by the checkpoint of step {model.step:,}."
    if held_out:
        about += " Sentences with an answer are from documents that the run never trained on."
    return section("What it says", f'<p class="quiet">{about}</p><div class="samples">{shown}</div>')


def prediction(sample: Sample, fillings: list[Filling], mask: re.Pattern[str]) -> str:
    """One sentence, its masks marked, and for each mask the top pieces with bars."""
    marks, lists = [], []
    for number, filling in enumerate(fillings, 1):
        name = "[MASK]" if len(fillings) == 1 else f"[MASK] {number}"
        marks.append(f"<mark>{name}</mark>")
        rows = []
        for piece, share in filling[:SHOWN]:
            kind = ' class="right"' if piece == sample.answer else ""
            bar = f'<span class="bar"><i style="width:{share:.1%}"></i></span>'
            rows.append(f"<li><span{kind}>{escape(piece)}</span>{bar}<span>{share:.1%}</span></li>")
        caption = f'<p class="answer">{name}</p>' if len(fillings) > 1 else ""
        lists.append(f'{caption}<ol class="fillings">{"".join(rows)}</ol>')
    answer = ""
    if sample.answer is not None:
        ranks = [rank for rank, (piece, _) in enumerate(fillings[0], 1) if piece == sample.answer]
        rank = f"rank {ranks[0]}" if ranks else f"not among the first {len(fillings[0])}"
        answer = f'<p class="answer">The word was <b>{escape(sample.answer)}</b>: {rank}.</p>'
    parts = [escape(part) for part in mask.split(sample.text)]
    text = parts[0] + "".join(mark + part for mark, part in zip(marks, parts[1:], strict=True))
    return f'<div class="card"><p class="sentence">{text}</p>{"".join(lists)}{answer}</div>'


def where_right(run: Run, model: Predictor | None) -> str:
    """Of a pre-training whose corpus is at hand: masked-LM accuracy by position and by the frequency of the piece."""
    found = accuracy_of_run(run, model) if model is not None else None
    if found is None:
        return ""
    about = f"Masked-LM accuracy on {found.examples:,} held-out examples. Shaded: 95% interval (Wilson)."
    charts = "".join(accuracy_charts([("held out", "held", found)], interval=True))
    return section("Where it is right", f'<p class="quiet">{about}</p><div class="charts">{charts}</div>')


def what_it_looks_at(run: Run, model: Predictor | None, samples: Sequence[Sample]) -> str:
    """The attention of every head in one short text that the page shows elsewhere, or in a general one."""
    if model is None or "encoder" not in model.params:
        return ""
    wrong = [Sample(one["text"]) for one in run.evaluation.get("mistakes") or ()]
    text = short_text([*samples, *wrong, *GENERAL], model)
    return section("What it looks at", attention_view(model.attention(text))) if text else ""


def data_card(run: Run) -> str:
    """What the run learned from, as the corpus itself records it."""
    splits = run.corpus.get("splits")
    if not isinstance(splits, dict):
        where = run.config.get("corpus")
        note = (
            f"The data is not at hand any more: <code>{escape(str(where))}</code>" if where else data_files(run.config)
        )
        return section("What it learned from", f'<p class="quiet">{note}</p>') if note else ""
    names = ("documents", "sentences", "tokens")
    rows = []
    for split, counts in splits.items():
        cells = [f"{counts.get(name, 0):,}" for name in names]
        cells.append(f"{counts.get('unknown_tokens', 0) / max(counts.get('tokens', 0), 1):.2%}")
        rows.append(table_row([escape(split.replace("_", " ")), *cells]))
    table = f"<table>{table_head(('', *names, '[UNK]'))}<tbody>{''.join(rows)}</tbody></table>"
    return section("What it learned from", f'<div class="card">{table}{corpus_facts(run.corpus)}</div>')


def data_files(config: dict[str, Any]) -> str:
    """What a fine-tuning's config says of its data."""
    values, directory = config | (config.get("data") or {}), config.get("data_dir")
    given = [values.get(name) for name in ("source", "name", "format", "version", "train", "dev", "test")]
    names = [name for one in given for name in (one if isinstance(one, list) else [one]) if isinstance(name, str)]
    place = f" in <code>{escape(directory)}</code>" if directory else ""
    return escape(", ".join(filter(None, names))) + place


def corpus_facts(corpus: dict[str, Any]) -> str:
    """Vocabulary, size, repetitions and warnings of a corpus, as far as it records them."""
    tokenizer, facts = corpus.get("tokenizer") or {}, []
    if tokenizer.get("vocab_size"):
        case = "uncased" if tokenizer.get("lowercase") else "cased"
        facts.append(f"{tokenizer['vocab_size']:,} pieces ({case} {tokenizer.get('kind', '')})")
    if corpus.get("text_bytes"):
        facts.append(f"{corpus['text_bytes'] / 1e6:,.1f} MB of text")
    for name in ("documents", "sentences"):
        share = (corpus.get(f"duplicate_{name}") or {}).get("share")
        if share is not None:
            facts.append(f"{share:.1%} of the {name} repeat another")
    text = f'<p class="answer">{escape("; ".join(facts))}.</p>' if facts else ""
    return text + "".join(f'<p class="answer">{escape(str(one))}</p>' for one in corpus.get("warnings") or ())
