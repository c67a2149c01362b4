"""The HTML page of a fitted model, with its accuracy on held-out labels."""

from jlgcn.report.model_page import write_model_page

__all__ = [
    "write_model_page",
]
