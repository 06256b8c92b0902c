"""Our attacks, and the door for anybody's: a package's entry point in `simfl.attacks`, or path.py:Name."""

from simfl.config.kinds import KindRegistry
from simfl.privacy.attacks.attack import Attack
from simfl.privacy.attacks.inversion import Inversion
from simfl.privacy.attacks.least_squares import LeastSquares
from simfl.privacy.attacks.membership import Membership
from simfl.privacy.attacks.model_inversion import ModelInversion

_OURS = (LeastSquares, Inversion, ModelInversion, Membership)
ATTACKS = KindRegistry("attack", Attack, _OURS, "attacks")  # type: ignore[type-abstract]
