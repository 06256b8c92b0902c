"""Machines are tested over both primes where content decides: the one of the paper, and one with transforms.

Over the second one every encoding is a transform, however small. What is refused, ignored or relayed depends
on no prime, and is tested over the paper's; so are the longest tests of losses, and of what is forgotten.
"""

import pytest

from simfl.crypto import field, mds, ntt
from tests.protocols import buffers, harness

OVER_BOTH = {f"tests.protocols.test_{name}" for name in ("rounds", "privacy", "discards", "buffers")}
ONCE = (
    "test_secagg_is_exact_after_any_9_of_20_losses",
    "test_secagg_aborts_after_any_10_of_20_losses",
    "test_lightsecagg_aborts_after_any_7_of_20_losses",
    *(
        f"test_every_pattern_of_4_users_completes_if_enough_are_left[ntt-{kind}-{every}-"
        for kind in ("lost", "told")
        for every in (1, 5)
    ),
    "test_every_pattern_of_4_users_completes_if_enough_are_left[ntt-late-5-secagg]",
    "test_a_secagg_server_sees_one_kind_of_share",
    "test_random_runs_reach_the_edge_cases",
    "test_after_losses_the_run_goes_on",
    "test_client_drops_shares_beyond_the_bound",
    "test_what_clients_keep_does_not_grow",
    "fedbuff",
)


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__ in OVER_BOTH:
        metafunc.parametrize("prime", [field.Q, ntt.Q], indirect=True, ids=["paper", "ntt"])


def pytest_collection_modifyitems(config, items):
    here = [item for item in items if item.nodeid.startswith("tests/protocols/") and "[ntt" in item.name]
    again = [item for item in here if any(part in item.name for part in ONCE)]
    config.hook.pytest_deselected(items=again)
    items[:] = [item for item in items if item not in again]


@pytest.fixture(autouse=True)
def prime(request, monkeypatch):
    """The prime that a test and its harness know as Q."""
    q = getattr(request, "param", field.Q)
    for module in (harness, buffers, request.module):
        if hasattr(module, "Q"):
            monkeypatch.setattr(module, "Q", q)
    if q == ntt.Q:
        monkeypatch.setattr(mds, "transform_is_faster", lambda *_: True)
