"""Text and tasks for the tables at a laptop's size: python -m experiments.small_data --data DIR --output small

Writes ``text.jsonl``, a document a line (pieces of the books and articles of DIR/corpora), for build_corpus; and of
each task training and development files in its official layout, in folders of their own. Sets that are published in one
part are split so that rows of one source (a sentence, an article, a video) stay together; the same in every call. The
folder appears when it is complete.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.compare_pretraining import PIECE, documents
from experiments.finetuning_cases import CASES, Sizes, split_articles, write_case

BOOKS, ARTICLES = "corpora/gutenberg/*.txt", "corpora/wikitext-2/*.txt"
# Folder, case of finetuning_cases, rows for training and for evaluation.
TASKS = (
    ("glue", "sts-b", Sizes(4000, 1500)),
    ("glue", "qnli", Sizes(2000, 1000)),
    ("hellaswag", "hellaswag", Sizes(400, 300)),
    ("wnut17", "wnut17", Sizes(2000, 1009)),
)
# Folder, file, version; in questions.
QUESTIONS = (
    ("squad1", "squad/dev-v1.1-subset.json", "1.1", Sizes(700, 400)),
    ("squad2", "squad/dev-v2.0-half.json", "2.0", Sizes(700, 400)),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="small_data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with corpora, glue, squad, hellaswag, ner")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to write; it must not exist")
    args = parser.parse_args(arguments)
    try:
        write(Path(args.data), Path(args.output))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {' '.join(str(error).split())}")
    print(f"text and tasks -> {args.output}")


def write(data: Path, output: Path) -> None:
    """ValueError: ``output`` exists. FileNotFoundError: a set is not in ``data``."""
    if output.exists():
        raise ValueError(f"{output} exists; give another --output or delete it")
    temporary = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write_text(data, temporary / "text.jsonl")
    for folder, case, sizes in TASKS:
        write_case(CASES[case], data, temporary / folder, sizes)
    for folder, name, version, sizes in QUESTIONS:
        if not (data / name).is_file():
            raise FileNotFoundError(f"no {name} in {data}; give another --data")
        (temporary / folder).mkdir()
        split_articles(data / name, temporary / folder, sizes, version)
    temporary.rename(output)


def write_text(data: Path, path: Path) -> None:
    """A JSON object a document: articles, and pieces of books.

    FileNotFoundError: there are none.
    """
    articles = [text for _, text in documents([str(data / ARTICLES)])]
    books = sorted(data.glob(BOOKS))
    if not books:
        raise FileNotFoundError(f"no {BOOKS} in {data}; give another --data")
    texts = [*articles, *(piece for book in books for piece in pieces(book.read_text(encoding="utf-8")))]
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
    path.write_text("".join(lines), encoding="utf-8")


def pieces(text: str) -> list[str]:
    """Whole lines, about ``PIECE`` characters of them: a book in one would be on one side of the split as a whole."""
    result: list[list[str]] = [[]]
    size = 0
    for line in text.splitlines(keepends=True):
        if size >= PIECE:
            result.append([])
            size = 0
        result[-1].append(line)
        size += len(line)
    return ["".join(lines) for lines in result]


if __name__ == "__main__":
    main()
