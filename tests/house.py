"""The size of simfl by package, the core apart from its annexes: lines of code, and comments.

python -m tests.house     prints a line for each package, and the sums

A line of code is one that has a token other than a comment, and is no part of an import or a docstring (of a
field, too). So neither explaining nor importing makes the house larger.
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import astuple, dataclass
from pathlib import Path

PRODUCT = Path(__file__).parents[1] / "simfl"
ANNEXES = {"live", "privacy", "studies", "connect"}
"""Packages that the core never imports."""
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Size:
    """The size of a module, or of several."""

    files: int = 0
    lines: int = 0
    """All of them."""
    code: int = 0
    """Lines of code."""
    comments: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def size(text: str) -> Size:
    """Return the size of a module's text."""
    apart: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (is_text and isinstance(node.value.value, str)):
            apart.update(range(node.lineno, node.end_lineno + 1))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    code = {
        line
        for token in tokens
        if token.type not in BLANK
        for line in range(token.start[0], token.end[0] + 1)
    }
    comments = sum(token.type == tokenize.COMMENT for token in tokens)
    return Size(1, len(text.splitlines()), len(code - apart), comments)


def packages(product: Path = PRODUCT) -> dict[str, Size]:
    """Return the size of each package, the largest first; modules beside them are one, `(modules)`."""
    sizes: dict[str, Size] = {}
    for path in product.rglob("*.py"):
        first, *below = path.relative_to(product).parts
        name = first if below else "(modules)"
        sizes[name] = sizes.get(name, Size()) + size(path.read_text(encoding="utf-8"))
    return dict(sorted(sizes.items(), key=lambda item: -item[1].code))


def main() -> None:
    sizes = packages()
    for name, each in sizes.items():
        kind = "annex" if name in ANNEXES else "core"
        print(
            f"{name:14}{kind:6}{each.files:5} files{each.lines:7} lines"
            f"{each.code:7} of code{each.comments:5} comments"
        )
    total = sum(sizes.values(), Size())
    annexes = sum(each.code for name, each in sizes.items() if name in ANNEXES)
    print(
        f"core {total.code - annexes}, annexes {annexes}, all {total.code}; "
        f"{1000 * total.comments / total.lines:.0f} comments in 1,000 lines"
    )


if __name__ == "__main__":
    main()
