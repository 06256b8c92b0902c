"""Live runs take place in real time, where a busy machine may be late enough to change what happens."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder three tries; `-rR` lists those that needed more than one."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=2))
