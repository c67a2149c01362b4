"""One page about a fitted model, and how often it is right on labels that were hidden from it."""

from jlgcn.report.model_page import write_model_page

__all__ = [
    "write_model_page",
]
