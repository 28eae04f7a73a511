"""``write_report(workdir)``: what a run did, as one self-contained page."""

from bert_jax.report.page import write_report

__all__ = ["write_report"]
