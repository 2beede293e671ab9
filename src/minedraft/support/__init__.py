"""What minedraft supports: the table, and the page made from it."""

from minedraft.support.page import render
from minedraft.support.row import Row, Verdict
from minedraft.support.rows import ROWS

__all__ = ["ROWS", "Row", "Verdict", "render"]
