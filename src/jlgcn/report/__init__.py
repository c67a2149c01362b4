"""Pages to look at: what the records say, in tables and figures too; and what a model found."""

from jlgcn.report.documents import differences, renewed
from jlgcn.report.held_out import HeldOut, held_out
from jlgcn.report.model_page import write_model_page
from jlgcn.report.page import write_report
from jlgcn.report.summary import summarize
from jlgcn.report.tables import rows_as_csv, summary_table

__all__ = [
    "HeldOut",
    "differences",
    "held_out",
    "renewed",
    "rows_as_csv",
    "summarize",
    "summary_table",
    "write_model_page",
    "write_report",
]
