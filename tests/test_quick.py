"""`make quick` runs the tests that a change may break, and few others."""

from __future__ import annotations

from tests.quick import ALWAYS, PAGES, choose_tests


def chosen(*files: str) -> set[str]:
    return set(choose_tests(files)) - set(ALWAYS)


def test_a_module_brings_the_tests_that_lead_to_it() -> None:
    """Loops of the Shamir code lead to it; the graph of users does not."""
    of_field = chosen("simfl/crypto/shamir.py")
    assert "tests/crypto/test_shamir.py" in of_field
    assert "tests/crypto/test_signatures.py" not in of_field
    assert all(test.startswith("tests/crypto/") for test in of_field)


def test_a_helper_of_tests_brings_those_that_use_it() -> None:
    assert "tests/engine/test_timing.py" in chosen("tests/engine/harness.py")
    assert "tests/engine/test_life.py" not in chosen("tests/engine/harness.py")


def test_a_test_brings_itself_and_a_page_its_links() -> None:
    assert chosen("tests/world/test_tcp.py", "docs/plan.md") == {"tests/world/test_tcp.py", PAGES}


def test_a_template_brings_all_tests_of_its_package() -> None:
    assert "tests/reports/test_page.py" in chosen("simfl/reports/templates/head.html")


def test_a_loose_module_brings_tests_beside_the_folders() -> None:
    assert "tests/test_random_streams.py" in chosen("simfl/random_streams.py")
