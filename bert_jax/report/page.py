"""``report.html``: one self-contained page of a run, or of a folder of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bert_jax.predict import load
from bert_jax.report import masked_accuracy
from bert_jax.report.elements import write_page
from bert_jax.report.folder import FILES, read_folder
from bert_jax.report.folder_page import folder_page
from bert_jax.report.run import MARKS, read_run
from bert_jax.report.run_page import run_page
from bert_jax.report.samples import Sample
from bert_jax.training.stored_run import FILES_ONLY, holds, local_files, local_run, push_file

FILE = "report.html"


def write_report(workdir: str | Path, sentences: Sequence[str | Sample] = ()) -> Path:
    """Writes ``workdir/report.html`` and returns its path; of a URL the page is in the local copy, and pushed.

    Args:
        workdir: of a run that is finished, stopped or still going; else a folder of such runs, at any depth, which
            the page compares.
        sentences: of a run's page: to fill the masks of, before the held-out sentences that are shown anyway.

    Raises:
        FileNotFoundError: there is no run, or it has no recorded figures.
        ValueError: a sentence without [MASK] or too long for the model, or sentences for a folder of runs.
    """
    if not holds(workdir, MARKS):
        return _write_folder(workdir, sentences)
    directory = local_run(workdir)
    run = read_run(directory)
    try:
        model = load(directory)
    except FileNotFoundError:  # no checkpoint yet: everything else can be shown
        model = None
    given = [one if isinstance(one, Sample) else Sample(one) for one in sentences]
    write_page(run.directory / FILE, run.name, run_page(run, model, given))
    push_file(workdir, FILE)
    if (run.directory / masked_accuracy.FILE).exists():
        push_file(workdir, masked_accuracy.FILE)
    return run.directory / FILE


def _write_folder(workdir: str | Path, sentences: Sequence[str | Sample]) -> Path:
    if sentences:
        raise ValueError(f"{workdir} is no run, whose model could fill masks; give the --workdir of one for sentences")
    directory = local_files(workdir, FILES)
    folder = read_folder(directory)
    path = folder.directory / FILE
    write_page(path, folder.directory.name, folder_page(folder))
    push_file(workdir, FILE, FILES_ONLY)
    return path
