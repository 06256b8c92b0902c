"""All messages to users side by side, as the source has them.

python -m tests.messages     writes tests/messages.txt, for whoever changes one; a test compares the two

A message is a text that is raised, or that a check yields or returns with the key it is about. What is put in
stands in braces: local texts are written out, and alternatives are in brackets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "simfl"
FILE = ROOT / "tests" / "messages.txt"
MAKERS = {
    "refusal", "error", "place", "problem", "Problem", "Wrong", "Unfit", "Damaged", "BadInput",
    "BadParameter", "RunFailed", "ValueError", "TypeError", "ScenarioError", "PeerFault", "_bad", "_refuse",
    "too_large", "DataPlaneError", "ClusterFailed", "UnpackingError", "abort", "fail",
}  # fmt: skip
"""Functions and errors whose texts are messages."""
WORDED = {PRODUCT / "scenario" / "messages.py"}
"""Files whose functions return messages."""
DEPTH = 3
"""Local texts in local texts that are written out."""

Texts = dict[str, list[tuple[int, ast.expr]]]
"""By name, the lines at which a function gives it a value, and the values."""


def written(node: ast.expr, texts: Texts, line: int, depth: int = DEPTH) -> str:
    """Return an expression as it stands in a message of a line; empty if it has no text of its own."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part, texts, line, depth) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return written(node.value, texts, line, depth) or f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [(side, written(side, texts, line, depth)) for side in (node.left, node.right)]
        return (
            "".join(text or f"{{{ast.unparse(side)}}}" for side, text in sides)
            if any(dict(sides).values())
            else ""
        )
    if isinstance(node, ast.IfExp):
        options = [written(side, texts, line, depth) for side in (node.body, node.orelse)]
        return f"[{'|'.join(options)}]" if any(options) else ""
    if isinstance(node, ast.Name) and depth:
        earlier = [(at, value) for at, value in texts.get(node.id, ()) if at < line]
        return written(earlier[-1][1], texts, earlier[-1][0], depth - 1) if earlier else ""
    return ""


def local_texts(function: ast.AST) -> Texts:
    """Return the values that a function gives to each of its names, in the order of lines."""
    texts: Texts = {}
    for node in sorted((n for n in ast.walk(function) if isinstance(n, ast.Assign)), key=lambda n: n.lineno):
        if isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, []).append((node.lineno, node.value))
    return texts


def messages_in(function: ast.AST, returns: bool) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each message in a function; those that it returns, too, if `returns`."""
    texts = local_texts(function)
    for node in ast.walk(function):
        parts, line = list[ast.expr](), getattr(node, "lineno", 0)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            parts = list(node.args) if name in MAKERS else []
        elif isinstance(node, ast.Yield | ast.Return) and isinstance(node.value, ast.Tuple):
            parts = list(node.value.elts) if len(node.value.elts) == 2 else []
        elif returns and isinstance(node, ast.Return) and node.value is not None:
            parts = [node.value]
        shown = [text for part in parts if (text := written(part, texts, line))]
        if shown and " " in shown[-1]:
            yield line, " ".join(": ".join(shown).split())


def listed() -> str:
    """Return the messages of each file, in its order."""
    blocks = []
    for path in sorted(PRODUCT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        tables = [n for n in ast.walk(tree) if isinstance(n, ast.Dict)] if path in WORDED else []
        texts = {message for function in functions for message in messages_in(function, path in WORDED)}
        values = [value for table in tables for value in table.values if isinstance(value, ast.Constant)]
        texts |= {(value.lineno, str(value.value)) for value in values if " " in str(value.value)}
        if texts:
            lines = "".join(f"  {text}\n" for _, text in sorted(texts))
            blocks.append(f"{path.relative_to(PRODUCT).as_posix()}\n{lines}")
    return "\n".join(blocks)


if __name__ == "__main__":
    FILE.write_text(listed(), encoding="utf-8")
