"""``write_report(workdir)``: what a run, or every run of a folder, did, as one self-contained page."""

from bert_jax.report.page import write_report

__all__ = ["write_report"]
