"""Faults of privacy are found by `simfl verify`, each by the checks that the page names."""

from collections.abc import Iterator

import pytest

from simfl.crypto import mds
from simfl.studies.verify import CHECKS, Subject, answers
from simfl.studies.verify_privacy import PRIVACY
from tests.docs.pages import ROOT
from tests.studies.planted import PLANTED, Planted, table

QUICK = [check.__name__ for check in PRIVACY if check.__name__ != "secrets"]


@pytest.fixture(autouse=True)
def matrices() -> Iterator[None]:
    """Forget the codes' matrices afterwards: a fault may have changed one."""
    yield
    mds.matrix.cache_clear()


def dear(fault: Planted) -> object:
    """Mark what takes long; of faults that two protocols may have, that of the buffer is the dearest."""
    elsewhere = {other.plant for other in PLANTED if other.protocol != "lightsecagg_async"}
    again = fault.protocol == "lightsecagg_async" and fault.plant in elsewhere
    costly = "secrets" in fault.found_by or fault.protocol == "lightsecagg_async"
    marks = [pytest.mark.slow] if again else [pytest.mark.ci] if costly else []
    return pytest.param(fault, marks=marks, id=fault.name)


@pytest.mark.ci(but=["weight_in_the_clear"])
@pytest.mark.parametrize("fault", [*map(dear, PLANTED)])
def test_a_planted_fault_is_found(fault: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the checks of the table and by no other one of these."""
    fault.plant(monkeypatch)
    checks = {name: CHECKS[name] for name in {*QUICK, *fault.found_by}}
    rows = list(answers(Subject(fault.protocol, {}), checks))
    assert {row.name for row in rows if row.findings} == {*fault.found_by}
    assert not [finding for row in rows for finding in row.findings if "a machine failed" in finding]


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "privacy_evidence.md").read_text(encoding="utf-8")
    assert table() in page, "python -m tests.studies.planted"


def test_each_privacy_check_finds_a_fault() -> None:
    assert {name for fault in PLANTED for name in fault.found_by} == {check.__name__ for check in PRIVACY}
