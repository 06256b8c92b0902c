"""What `import simfl` gives."""

from __future__ import annotations

import inspect
import subprocess
import sys

import simfl


def test_a_name_is_the_same_at_each_access_and_after_the_others() -> None:
    """No module of the package bears such a name: importing it would put it in the function's place."""
    code = "import simfl\nfirst = simfl.run, simfl.simulate\nimport simfl.cli.basics\n"
    code += "assert (simfl.run, simfl.simulate) == first and all(map(callable, first))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert inspect.iscoroutinefunction(simfl.simulate)
    assert isinstance(simfl.Result, type)
    assert issubclass(simfl.ScenarioError, Exception)
