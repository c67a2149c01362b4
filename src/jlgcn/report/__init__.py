"""What the records say: tables, figures, one page to look at, and a check of the documents."""

from jlgcn.report.summary import summarize

__all__ = ["summarize"]
