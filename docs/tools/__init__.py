"""Makers of the pages in docs/ that come from code or runs; in a checkout, `python -m docs.tools.NAME`."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout."""
