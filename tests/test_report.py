"""The report of a run: complete, escaped, self-contained, for whole and for broken runs."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bert_jax.data.corpus import Corpus
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.report import write_report
from bert_jax.report.charts import Across, Level, Series, line_chart, tick_label, ticks
from bert_jax.report.elements import duration, short
from bert_jax.report.run import read_run
from bert_jax.report.samples import Sample, closed_up, held_out_samples
from bert_jax.training.train import train


@pytest.fixture(scope="module")
def finished(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "<b>a & b"
    phases = [{"train_steps": 6, "max_seq_length": 16}, {"train_steps": 4, "batch_size": 8}]
    model = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = {
        "task": "pretraining",
        "corpus": str(tiny_corpus),
        "model": model | {"max_position_embeddings": 32},
        "batch_size": 16,
        "max_seq_length": 32,
        "phases": phases,
        "log_every_steps": 2,
        "eval_every_steps": 5,
        "eval_examples": 16,
        "mesh": {"data": 1},
    }
    train(config, path)
    return path


def run_of(path: Path, lines: list[dict[str, Any]], config: dict[str, Any] | None = None) -> Path:
    """A workdir with recorded figures and no checkpoint."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


class Page(HTMLParser):
    """Checks that tags nest; collects text and addresses."""

    VOID = frozenset({"meta", "path"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        assert tag not in ("script", "link", "img", "iframe")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if word)


def page_of(workdir: Path, sentences: tuple[str | Sample, ...] = (), addresses: tuple[str, ...] = ()) -> Page:
    html = write_report(workdir, sentences).read_text(encoding="utf-8")
    assert "http" not in html and "url(" not in html and "@import" not in html
    page = Page(html)
    assert page.addresses == list(addresses)
    return page


def test_a_finished_run_is_told_whole(finished: Path) -> None:
    page = page_of(finished, (Sample("waa [MASK] & <wac>", "wad"), "waa [MASK] wag [MASK]"))
    evaluation = read_run(finished).last_evaluation
    text = page.text
    for expected in (
        "<b>a & b",
        "Complete: 10 steps",
        f"{evaluation['mlm_loss']:.3f}",
        f"unigram {evaluation['unigram_loss']:.3f}",
        f"{evaluation['perplexity']:,.1f}",
        "Next-sentence accuracy",
        "8 × 32 tokens",  # where the second phase begins
        "waa [MASK] & <wac>",
        "The word was wad :",
        "[MASK] 2",
        "Masked-LM accuracy on 16 held-out examples",
        "By frequency of the piece",
        "layer 0",
        "mean of its heads",
        "learning rate",
        "jaxlib",
        "eval_every_steps",
    ):
        assert expected.lower() in text.lower(), expected
    assert text.count("The word was") == 6  # ours and five held-out ones


def test_a_single_line_without_evaluation(tmp_path: Path) -> None:
    line = {"step": 5, "time": 1.0, "loss": 2.5, "tokens_per_second": 1000.0, "steps_per_second": 2.0}
    text = page_of(run_of(tmp_path / "one", [line], {"task": "x", "train_steps": 9})).text
    assert "So far 5 of 9 steps" in text and "nothing was evaluated" in text and "2.500" in text


def test_of_epochs_the_lines_say_how_many_steps(tmp_path: Path) -> None:
    lines = [{"step": step, "total_steps": 9, "loss": 2.5} for step in (4, 8)]
    run_of(tmp_path, lines, {"task": "x", "train_epochs": 3.0})
    assert "So far 8 of 9 steps" in page_of(tmp_path).text
    assert "Complete: 9 steps" in page_of(run_of(tmp_path, [*lines, {"step": 9, "total_steps": 9, "loss": 2.5}])).text


def test_only_evaluations_and_figures_nobody_knows(tmp_path: Path) -> None:
    text = page_of(run_of(tmp_path / "e", [{"step": 1, "eval/f1": 0.75, "eval/odd<name>": 2.0}])).text
    assert "F1 75.0%" in text and "Odd<name> 2" in text


@pytest.mark.parametrize(
    ("task", "figures", "shown"),
    [
        ("classification", {"f1": 0.9, "accuracy": 0.85, "macro_f1": 0.8}, ["F1 90.0%", "85.0%", "Macro F1 80.0%"]),
        ("choice", {"accuracy": 0.866}, ["Accuracy 86.6%"]),
        (
            "classification",
            {"matthews": 0.521, "f1_above_3": 0.7},
            ["Matthews correlation 0.521", "F1 of similar 70.0%"],
        ),
        ("classification", {"pearson": 0.9, "spearman": 0.85}, ["Pearson correlation 0.900", "correlation 0.850"]),
        (
            "tagging",
            {"precision": 91.0, "recall": 89.0, "f1": 90.0, "macro_f1": 88.0, "accuracy": 0.98},
            ["Precision 91.0%", "Recall 89.0%", "F1 90.0%", "Macro F1 88.0%", "Accuracy 98.0%"],
        ),
        ("features", {"f1": 96.1, "accuracy": 0.99}, ["F1 96.1%", "Accuracy 99.0%"]),
        ("squad", {"exact_match": 80.8, "f1": 88.5}, ["Exact match 80.8%", "F1 88.5%"]),
        (
            "squad",
            {
                **{"f1": 81.9, "HasAns_exact": 70.0, "HasAns_f1": 75.0, "NoAns_exact": 85.0, "NoAns_f1": 86.0},
                **{"exact_match_at_0": 77.0, "f1_at_0": 80.0, "best_exact": 78.7, "best_f1": 81.8},
                **{"best_exact_thresh": -1.5, "best_f1_thresh": -2.5, "null_threshold": -3.25},
                **{"start_accuracy": 0.6, "end_accuracy": 0.65},
            },
            [
                *("answerable 70.0%", "answerable 75.0%", "unanswerable 85.0%", "unanswerable 86.0%", "untuned 77.0%"),
                *("untuned 80.0%", "Best exact match 78.7%", "Best F1 81.8%", "Threshold -1.50", "Threshold -2.50"),
                *("Threshold of no answer -3.25", "Start accuracy 60.0%", "End accuracy 65.0%"),
            ],
        ),
    ],
)
def test_percentages_look_alike_whatever_the_task(
    task: str, figures: dict[str, float], shown: list[str], tmp_path: Path
) -> None:
    lines = [{"step": step, **{f"eval/{name}": value for name, value in figures.items()}} for step in (1, 2)]
    page = page_of(run_of(tmp_path / "run", lines, {"task": task}))
    assert [one for one in shown if one not in page.text] == []
    headline = page.text[: page.text.index("How it learned")]
    assert "_" not in headline
    assert all(value <= 100 for value in map(float, re.findall(r"([\d.]+)%", page.text)))
    curve = read_run(tmp_path / "run").curve(f"eval/{next(iter(figures))}")[1]
    assert curve[0] == curve[1] <= 1


def test_what_a_fine_tuning_learned_from(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 1.0, "eval/accuracy": 0.5, "eval/majority_share": 0.25}]
    config = {"task": "classification", "init_from": "/runs/base", "data_dir": "/sets/<a>"}
    data = {"source": "table", "train": "train.tsv", "dev": "dev.tsv", "test": None}
    text = page_of(run_of(tmp_path / "table", lines, config | {"data": data})).text
    assert "begun from base" in text and "table, train.tsv, dev.tsv in /sets/<a>" in text
    assert "most frequent class 25.0%" in text  # a line in the chart
    tagged = {"task": "tagging", "data_dir": "", "format": "columns", "train": ["a.txt", "b.txt"], "dev": ""}
    assert "columns, a.txt, b.txt" in page_of(run_of(tmp_path / "tagged", lines, tagged)).text


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    lines = [{"step": s, "loss": v, "mlm_loss": v} for s, v in ((1, 3.0), (2, float("nan")), (3, float("inf")))]
    page = write_report(run_of(tmp_path / "n", lines)).read_text()
    assert "nan" not in re.findall(r'd="[^"]*"', page)


def test_a_name_that_is_not_text(tmp_path: Path) -> None:
    workdir = run_of(tmp_path / "odd\udcff name", [{"step": 1, "loss": 1.0}])
    assert "&#56575; name" in write_report(workdir).read_text(encoding="utf-8")


def test_a_corpus_that_is_gone(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "moved")
    config = json.loads((finished / "config.json").read_text()) | {"corpus": "/no/such/corpus"}
    (tmp_path / "moved" / "config.json").write_text(json.dumps(config))
    text = page_of(tmp_path / "moved").text
    assert "not at hand any more: /no/such/corpus" in text
    assert "What it says" not in text  # no sentence that this vocabulary can read


def test_without_figures_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^no run is in \S+; give the --workdir of a run, or a folder"):
        write_report(tmp_path)
    (tmp_path / "environment.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"holds no line in metrics\.jsonl yet; let a run"):
        write_report(tmp_path)
    for damaged in ("[1]", '{"loss": 1}', "3"):
        (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n' + damaged)
        with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged: line 2 has no step; remove it"):
            write_report(tmp_path)


def test_time_and_tokens_follow_from_the_lines(tmp_path: Path) -> None:
    lines = [
        {"step": 10, "loss": 1.0, "steps_per_second": 2.0, "tokens_per_second": 100.0},
        {"step": 30, "loss": 1.0, "steps_per_second": 4.0, "tokens_per_second": 300.0},
        {"step": 30, "eval/mlm_loss": 2.0},
    ]
    run = read_run(run_of(tmp_path, lines))
    assert run.seconds == 5 + 5 and run.tokens == 500 + 1500 and run.tokens_per_second == 200
    assert run.curve("eval/mlm_loss") == ([30], [2.0])


def test_held_out_samples_have_one_known_word_missing(tiny_corpus: Path) -> None:
    tokenizer = load_tokenizer(tiny_corpus / "tokenizer")
    corpus = Corpus.open(tiny_corpus, "held_out")
    sentences = {
        tuple(corpus.tokens[a:b].tolist()) for a, b in zip(corpus.sentences, corpus.sentences[1:], strict=False)
    }
    samples = held_out_samples(tiny_corpus, tokenizer, 32)
    assert len(samples) == 5 and samples == held_out_samples(tiny_corpus, tokenizer, 32)
    for sample in samples:
        assert sample.answer is not None
        assert tuple(tokenizer.encode_ids(sample.text.replace("[MASK]", sample.answer))) in sentences
    assert held_out_samples(tiny_corpus, tokenizer, 8) == []
    assert held_out_samples(None, tokenizer, 32) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on windows , use it ( the default ) .", "on windows, use it (the default)."),
        ("isn ' t it ?", "isn't it?"),
        ("a [MASK] , b [ 1 ]", "a [MASK], b [1]"),
        ("a [ MASK ] b", "a [ MASK] b"),  # text, which must not become the mask
        ("x . y", "x. y"),
    ],
)
def test_closing_up(text: str, expected: str) -> None:
    assert closed_up(text) == expected


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(6.1, 8.3) == [6.5, 7.0, 7.5, 8.0]
    assert ticks(0, 0.002, 5) == [0, 0.0005, 0.001, 0.0015, 0.002]
    assert [tick_label(v) for v in (0.0005, 0, 20000, 1.5e6)] == ["0.0005", "0", "20k", "1.5M"]


def test_a_chart_draws_inside_its_frame() -> None:
    drawn = line_chart(
        "T <1>", [Series("a", list(range(5000)), [s * 0.1 for s in range(5000)], "train")], write=str,
        levels=[Level("high", 900.0)], changes=[(4000, "b")],
    )  # fmt: skip
    points = re.findall(r"([\d.]+) ([\d.]+)", re.findall(r'class="line train" d="M([^"]*)"', drawn)[0])
    assert 300 <= len(points) <= 400
    assert all(66 <= float(x) <= 506 and 14 <= float(y) <= 256 for x, y in points)
    assert "T &lt;1&gt;" in drawn
    assert line_chart("none", [Series("a", [], [], "train")], write=str) == ""


def test_a_logarithmic_axis_and_a_band() -> None:
    series = Series("a", [1, 10, 100], [1.0, 2.0, 3.0], "s0", band=([0.0, 1.0, 2.0], [2.0, 3.0, 4.0]))
    drawn = line_chart("T", [series], write=str, across=Across("rate", log=True, ticks=[1, 10, 100]))
    left, middle, right = (
        float(x) for x, _ in re.findall(r"([\d.]+) ([\d.]+)", re.findall(r'line s0" d="M([^"]*)"', drawn)[0])
    )
    assert middle - left == pytest.approx(right - middle, abs=0.11) and left > 66
    band = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", re.findall(r'band s0" d="M([^"]*)Z"', drawn)[0])]
    assert len(band) == 6 and band[:3] == sorted(band[:3], reverse=True) and band[3:] == sorted(band[3:])
    assert all(14 <= y <= 256 for y in band)  # the band, not only the line, is inside
    assert re.findall(r'class="below"[^>]*>([^<]*)', drawn) == ["1", "10", "100"] and ">rate</text>" in drawn


def test_many_lines_have_fewer_points() -> None:
    lines = [Series("", list(range(1000)), [0.5 + s for s in range(1000)], "rest") for _ in range(30)]
    drawn = line_chart("T", [*lines, Series("a", [0, 1], [0.0, 1.0], "s0")], write=str)
    assert len(re.findall(r"L[\d.]+ [\d.]+", drawn)) < 30 * 40
    assert drawn.count('class="key') == 1  # those without a name are not in the legend


def test_short_numbers_and_durations() -> None:
    assert [short(n) for n in (950, 4380, 12_300, 4.4e6, 3.3e9)] == ["950", "4,380", "12.3k", "4.4M", "3.3G"]
    assert [duration(s).replace("\xa0", " ") for s in (45, 250, 12_000, 352_800)] == [
        "45 s",
        "4 min 10 s",
        "3 h 20 min",
        "4 d 2 h",
    ]
