"""Raw text -> a tokenised corpus directory for pre-training.

    python -m experiments.build_corpus --input 'texts/*.txt' --output corpus --vocab_size 30522 --lowercase
    python -m experiments.build_corpus --input 'wiki/*.jsonl.gz' --output corpus --tokenizer vocab.txt
    python -m experiments.build_corpus --input 'gs://bucket/wiki/*.jsonl.gz' --output gs://bucket/corpus

Without --tokenizer a vocabulary is learned first, from the same inputs. The corpus is the same to the byte for
any number of workers. It appears when it is complete; an interrupted build leaves nothing.

A text too large for one machine is read and tokenised by Apache Beam (`pip install '.[beam]'`) on Flink, Spark or
Dataflow, and appended here; the corpus is the same to the byte. We test this with Beam's own runner on one machine;
the following commands we have not run:

    python -m experiments.build_corpus --input '/shared/cc/*.txt.gz' --output /shared/corpus --tokenizer vocab.txt \\
        --runner beam --beam_options='--runner=FlinkRunner --flink_master=HOST:8081 --parallelism=64
            --environment_type=DOCKER --environment_config=IMAGE'
    ... --runner beam --parts_dir gs://BUCKET/parts --beam_options='--runner=DataflowRunner --project=P --region=R
            --temp_location=gs://BUCKET/tmp --sdk_container_image=IMAGE --max_num_workers=64'

Give absolute names or URLs (--input 'gs://BUCKET/*.jsonl.gz'). Every worker must see the inputs under the name that
they have here (for tfds: its TFDS_DATA_DIR), must have bert_jax and its requirements (IMAGE: Beam's for this
Python, plus requirements.txt and this checkout) and write to --parts_dir: a folder that all share, or gs://, s3://,
hdfs:// (`apache-beam[gcp]`, ...). What it holds until it is appended takes about as much space as the corpus. One
input is one piece of work: give many files rather than one large one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.corpus_builder import EncodeAll, build, check_arguments, sample_texts
from bert_jax.data.documents import Reading
from bert_jax.data.object_store import is_url
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer


def main(arguments: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    try:
        info, seconds = run(args)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        sys.exit(f"build_corpus: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        sys.exit("build_corpus: interrupted; nothing was written")
    print(summary(info, args.output, seconds))


def run(args: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """Learn the vocabulary if there is none, build; the corpus's info and the seconds of the building."""
    reading = Reading(args.format, args.documents, args.text_field, args.language)
    check_arguments(args.output, args.held_out, args.workers, args.overwrite)
    encode_all = _encode_all(args)
    tokenizer = load_tokenizer(args.tokenizer, lowercase=args.lowercase) if args.tokenizer else _learn(args, reading)
    start = time.perf_counter()
    info = build(
        args.input,
        tokenizer,
        args.output,
        held_out=args.held_out,
        workers=args.workers,
        overwrite=args.overwrite,
        reading=reading,
        encode_all=encode_all,
    )
    return info, time.perf_counter() - start


def summary(info: dict[str, Any], output: str | Path, seconds: float | None = None) -> str:
    """A table of what a corpus holds, what was skipped, and what to mind."""
    train, held_out = info["splits"]["train"], info["splits"]["held_out"]
    rows = [f"{'':24}{'train':>16}{'held out':>16}"]
    for name in ("documents", "sentences", "tokens"):
        rows.append(f"{name:24}{train[name]:>16,}{held_out[name]:>16,}")
    shares = [s["unknown_tokens"] / max(s["tokens"], 1) for s in (train, held_out)]
    rows.append(f"{'[UNK]':24}{shares[0]:>16.3%}{shares[1]:>16.3%}")
    for name in ("documents", "sentences"):
        duplicates = info[f"duplicate_{name}"]
        note = "" if duplicates["exact"] else " (estimated from a sample by hash)"
        rows.append(f"{'repeated ' + name:24}{duplicates['share']:>16.2%}{note}")
    rows.append(f"{'one-sentence documents':24}{info['one_sentence_documents']:>16,}")
    rows.append("files read as: " + ", ".join(f"{kind} {count:,}" for kind, count in info["formats"].items()))
    for reason, problem in info["skipped"].items():
        rows.append(f"skipped: {problem['count']:,} x {reason}; first: {problem['first']}")
    rows += [f"WARNING: {warning}" for warning in info["warnings"]]
    megabytes = info["text_bytes"] / 1e6
    speed = f" in {seconds:,.1f} s, {megabytes / seconds:,.1f} MB/s" if seconds else ""
    rows.append(f"{megabytes:,.1f} MB of text{speed} -> {output}")
    return "\n".join(rows)


def _encode_all(args: argparse.Namespace) -> EncodeAll | None:
    """What --runner says; None for this machine's processes. ValueError for flags that are the other runner's."""
    if args.runner == "local":
        for name in ("beam_options", "parts_dir"):
            if getattr(args, name) is not None:
                raise ValueError(f"--{name} is of --runner beam; add that or leave it out")
        return None
    if args.workers is not None:
        raise ValueError(
            "--workers counts this machine's processes; with --runner beam its runner's option does, such as "
            "--beam_options='--direct_running_mode=multi_processing --direct_num_workers=4'"
        )
    from bert_jax.data.corpus_beam import encode_on_beam

    output = args.output if is_url(args.output) else os.path.abspath(args.output)
    parts_dir = args.parts_dir or f"{output.rstrip('/')}.parts"
    return encode_on_beam(args.beam_options or "", parts_dir)


def _learn(args: argparse.Namespace, reading: Reading) -> Tokenizer:
    from bert_jax.data.vocabulary import learn_byte_bpe, learn_sentencepiece, learn_wordpiece

    print(f"learning a {args.tokenizer_kind} vocabulary of {args.vocab_size:,} pieces", file=sys.stderr)
    learners = {"wordpiece": learn_wordpiece, "sentencepiece": learn_sentencepiece, "byte_bpe": learn_byte_bpe}
    learn = learners[args.tokenizer_kind]
    texts = sample_texts(args.input, reading, args.held_out)
    return learn(texts, args.vocab_size, lowercase=bool(args.lowercase))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build_corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--input",
        action="append",
        required=True,
        metavar="GLOB",
        help="files (quoted pattern; also .gz .zst .bz2 .xz, also at a URL), or tfds:NAME[:split]; may be repeated",
    )
    add("--output", required=True, metavar="DIR", help="the corpus directory to make, or its URL")
    add("--tokenizer", metavar="PATH", help="tokenizer directory, vocab.txt or x.model; default: learn one")
    add("--vocab_size", type=int, default=30522, help="pieces to learn without --tokenizer (default %(default)s)")
    kinds = ("wordpiece", "sentencepiece", "byte_bpe")
    add("--tokenizer_kind", choices=kinds, default="wordpiece", help="what to learn (byte_bpe: RoBERTa's)")
    add(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help="lower-case the text (default: no when learning, else as the tokenizer says)",
    )
    add(
        "--format",
        choices=("auto", "lines", "text", "jsonl"),
        default="auto",
        help="lines: a sentence a line, blank lines between documents; text: running text, lines are joined and "
        "sentences split; jsonl: a document a line; auto (default): jsonl by the name or a first line that is a "
        "JSON object, lines if the lines are unwrapped single sentences, else text",
    )
    add(
        "--documents",
        choices=("file", "blank_line"),
        default="file",
        help="in the text format, a document is a file (default) or a paragraph",
    )
    add("--text_field", default="text", help="of JSON objects and TFDS records (default %(default)s)")
    add("--language", default="en", help="of the sentence splitter's abbreviations (default %(default)s)")
    add("--held_out", type=float, default=0.01, help="share of documents for evaluation (default %(default)s)")
    add("--workers", type=int, help="processes (default: the cores of this machine)")
    add("--runner", choices=("local", "beam"), default="local", help="local: this machine; beam: Apache Beam (above)")
    add(
        "--beam_options",
        metavar="OPTIONS",
        help="Beam's own, as ='--NAME=VALUE ...', among them its runner (default: one in this process)",
    )
    add("--parts_dir", metavar="DIR", help="where Beam's workers leave what they encoded (default: OUTPUT.parts)")
    add("--overwrite", action="store_true", help="replace a finished corpus")
    return parser


if __name__ == "__main__":
    main()
