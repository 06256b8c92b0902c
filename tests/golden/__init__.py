"""Traces that must not change unnoticed: `python -m tests.golden.update` writes them anew."""
