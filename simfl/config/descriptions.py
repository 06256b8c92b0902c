"""The text that stands below each field of a class, read from its source."""

import ast
import inspect
from itertools import pairwise
from textwrap import dedent


def descriptions(cls: type) -> dict[str, str]:
    """Return what the string below each of a class's own fields says, empty where there is none.

    >>> from simfl.runs.results.drift import Drift
    >>> descriptions(Drift)["most_ns"]
    'The 90th percentile.'
    """
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # made at run time, of fields that others describe
        return {}
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in pairwise([*tree.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            value = below.value if isinstance(below, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) else None
            found[field.target.id] = inspect.cleandoc(text) if isinstance(text, str) else ""
    return found
