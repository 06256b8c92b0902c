"""FedAsync: the model is the mixture of Algorithm 1, update by update."""

import numpy as np
import pytest

from simfl.crypto.field import Q
from simfl.errors import ScenarioError
from simfl.protocols.fedasync import FedAsync
from simfl.protocols.machine import Params
from simfl.protocols.staleness import Polynomial
from simfl.scenario.load import load
from tests.engine.harness import ASYNC
from tests.protocols.buffers import Buffers


class Mixed(Buffers):
    """Checks each result by a model of its own, mixed as in Algorithm 1 from whole models."""

    def __init__(self, seed, alpha, falling):
        self.models, self.weights = [np.linspace(-1, 1, 5)], []
        settings = {"alpha": alpha}
        params = {"K": 1, "staleness_bound": 3, "staleness": falling}
        super().__init__("fedasync", 6, seed=seed, settings=settings, **params)

    def check(self, result):
        (member,), alpha = result.members, self.server.alpha
        tau = self.versions[member.update]
        assert member.staleness == len(self.models) - 1 - tau <= 3
        weight = alpha * self.params.staleness(member.staleness)
        assert member.factor == weight
        delta = self.deltas[member.update][0].astype(np.float64)
        assert (result.total.content[0] == weight * delta).all()
        before, trained = self.models[-1], self.models[tau] - delta
        mixed = (1 - weight) * before + weight * trained
        np.testing.assert_allclose(before - result.mean.content[0], mixed, rtol=0, atol=1e-12)
        self.models.append(mixed)


@pytest.mark.parametrize(("seed", "alpha"), [(1, 0.6), (2, 1.0), (3, 0.05)])
def test_the_model_is_mixed_from_the_one_that_was_trained(seed, alpha):
    run = Mixed(seed, alpha, Polynomial(alpha=0.5)).play(400, losses=0.02, late=0.01, keep=4)
    assert len(run.results) > 40
    assert {m.staleness for r in run.results for m in r.members} == {0, 1, 2, 3}
    # Sums of steps are kept for the versions that an update may have been made on.
    assert len(run.server.steps) <= 4


def test_with_weight_one_the_model_becomes_the_users():
    """A stale update too replaces the model by the one that its user has trained."""
    run = Mixed(0, 1.0, lambda tau: 1.0)
    for user in (0, 1):
        run.begin(user)
    for user in (0, 1):
        run.submit(user)
        run.settle()
    second = run.models[0] - run.deltas[run.results[1].members[0].update][0]
    np.testing.assert_allclose(run.models[2], second, atol=1e-12)


def test_other_steps_of_the_server_are_refused():
    settings = {"protocols": {"fedasync": {"alpha": 0.5}}, "quantization": None, "privacy": None}
    with pytest.raises(
        ScenarioError, match=r"must be fedavg with server_lr=1, not fedavg with 0\.5: protocol"
    ):
        load(ASYNC, {**settings, "learning.server_lr": 0.5})
    with pytest.raises(ScenarioError, match="not fedadam with 1"):
        load(ASYNC, {**settings, "learning.server_lr": 1.0, "learning.server": "fedadam"})
    assert load(ASYNC, {**settings, "learning.server_lr": 1.0}).params("fedasync").K == 1


@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_alpha_is_a_weight(alpha):
    with pytest.raises(ValueError, match="alpha"):
        FedAsync(alpha=alpha)


def test_the_buffer_holds_one_update():
    assert FedAsync().params(Params(d=5, q=Q, K=10, least=4)).K == 1
