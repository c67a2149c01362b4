"""What the records say: tables, figures, one page to look at, and a check of the documents."""

from jlgcn.report.documents import differences, renewed
from jlgcn.report.page import write_report
from jlgcn.report.summary import summarize
from jlgcn.report.tables import rows_as_csv, summary_table

__all__ = [
    "differences",
    "renewed",
    "rows_as_csv",
    "summarize",
    "summary_table",
    "write_report",
]
