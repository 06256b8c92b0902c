"""The registry of attacks: ours, entry points in `simfl.attacks`, and path.py:Name."""

from simfl.config.kinds import KindRegistry
from simfl.privacy.attacks.attack import Attack
from simfl.privacy.attacks.inversion import Inversion
from simfl.privacy.attacks.least_squares import LeastSquares
from simfl.privacy.attacks.membership import Membership
from simfl.privacy.attacks.model_inversion import ModelInversion

_OURS = (LeastSquares, Inversion, ModelInversion, Membership)
ATTACKS = KindRegistry("attack", Attack, _OURS, "attacks")  # type: ignore[type-abstract]
