"""The examples in docstrings come out as they say."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["field", "keys", "mds", "ntt", "prg", "quantize", "shamir"])
def test_examples_in_docstrings(name: str) -> None:
    done = doctest.testmod(import_module(f"simfl.crypto.{name}"))
    assert done.failed == 0 < done.attempted
