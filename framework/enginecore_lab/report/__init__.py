"""What a comparison found, for people: a table in the terminal, and one self-contained page."""

from enginecore_lab.report.page import write_html
from enginecore_lab.report.terminal import print_comparison

__all__ = ["print_comparison", "write_html"]
