"""FedAvg: the plain weighted sum, and whom it leaves out."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.dataplane import audit
from tests.protocols.harness import Slow, lose_at, world
from tests.sizes import examples


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6)), st.booleans())
def test_the_sum_is_numpys_and_the_mean_is_weighted(lost, late, early):
    w = world("fedavg", 7)
    w.server = Slow(w.server, dict.fromkeys(late - lost, "upload"))
    out = w.run(fate=lose_at(dict.fromkeys(lost, "upload")), early=early)
    users = [u for u in range(7) if u not in lost | late]
    if not users:
        assert out.reason == "upload: 0 users answered, 1 needed"
        assert out.result is None
        return
    assert [m.user for m in out.result.members] == users
    total = np.zeros((1, 5))
    for u in users:
        total = total + np.float64(u + 1) * w.updates[u].delta.content
    assert (out.result.total.content == total).all()
    deltas = [w.updates[u].delta.content[0] for u in users]
    mean = np.average(np.array(deltas, np.float64), axis=0, weights=[u + 1 for u in users])
    np.testing.assert_allclose(out.result.mean.content[0], mean, rtol=1e-12)
    checked = audit.real(out.result.total.content, [x[None] for x in deltas], [u + 1 for u in users])
    assert checked.tolist() == [[0, 0, 0]]


def test_upload_is_the_update_and_its_weight():
    out = world("fedavg", 3).run()
    assert [(m.weight, m.size_bytes) for _, _, m in out.sent] == [(u + 1, 4 * 5 + 4) for u in range(3)]
