"""docs/notebook.md is run cell by cell, as one coroutine."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io

import pytest

from tests.docs.pages import ROOT, Block, blocks, differs

PAGE = ROOT / "docs" / "notebook.md"


async def run_cells(cells: list[Block]) -> None:
    """As Jupyter does: each cell in the same names, `await` allowed at its top. A block of text is what the
    cell before it printed; one without prints nothing."""
    names: dict[str, object] = {}
    printed = ""
    for number, cell in enumerate(cells):
        if cell.language == "text":
            shown = cell.text.splitlines()
            assert not (wrong := differs(tuple(shown), printed)), f"{wrong}\n{printed}"
            assert len(shown) == len(printed.splitlines()), printed
            printed = ""
            continue
        assert not printed, f"the page does not show {printed!r}"
        code = compile(cell.text, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            outcome = eval(code, names)
            if inspect.iscoroutine(outcome):
                await outcome
        printed = out.getvalue()
    assert not printed


@pytest.mark.ci
def test_the_cells_print_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    cells = blocks(PAGE)
    assert [cell.language for cell in cells].count("text") >= 4
    assert {cell.language for cell in cells} == {"python", "text"}
    asyncio.run(run_cells(cells))
