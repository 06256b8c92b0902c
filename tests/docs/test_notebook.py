"""docs/notebook.md is run cell by cell, as one coroutine."""

from __future__ import annotations

import ast
import asyncio
import inspect

import pytest

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "notebook.md"


async def run_cells(cells: list[str]) -> None:
    """As Jupyter does: each cell in the same names, `await` allowed at its top."""
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        code = compile(cell, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(code, names)
        if inspect.iscoroutine(outcome):
            await outcome


def test_the_cells_run_in_order(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    cells = [block.text for block in blocks(PAGE)]
    assert {block.language for block in blocks(PAGE)} == {"python"}
    asyncio.run(run_cells(cells))
    out = capsys.readouterr().out
    assert "lightsecagg: 1 of 1 rounds" in out
    assert "lightsecagg  round 1: 0." in out
    assert "offline   shares" in out
    assert "Step" in out
    assert "privacy.T=9 must be below privacy.U=8" in out or "T=9 must be below U=8" in out
