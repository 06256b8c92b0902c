"""The hello's proof: an HMAC of the connection's nonce, compared in every one of its digits."""

import pytest

from simfl.live.control import Hello
from simfl.live.hello import RUN, Admission, proof

TOKENS = {0: "right", 1: "another"}
NONCE = "a nonce"
SERVER = Admission(TOKENS, certificate="a pin")
RIGHT = proof("right", "a pin", NONCE, 0)


def turned(shown: str) -> str:
    """Return why user 0 is turned away with this proof."""
    return SERVER.reject_reason(Hello(0, shown, RUN, "", "", "", 0), NONCE)


def test_the_right_proof_is_let_in() -> None:
    assert len(RIGHT) == 64
    assert turned(RIGHT) == ""


@pytest.mark.parametrize("at", range(64))
def test_a_proof_with_one_other_digit_is_refused(at: int) -> None:
    other = "0" if RIGHT[at] != "0" else "1"
    assert turned(RIGHT[:at] + other + RIGHT[at + 1 :]) == "user 0 does not have its token"


@pytest.mark.parametrize("shown", ["", RIGHT[:8], RIGHT[:63], RIGHT + "0", RIGHT.upper(), "ü" * 64])
def test_a_part_of_a_proof_is_refused(shown: str) -> None:
    assert turned(shown) == "user 0 does not have its token"


@pytest.mark.parametrize(
    "how",
    [
        ("another", "a pin", NONCE, 0),
        ("right", "another pin", NONCE, 0),
        ("right", "a pin", "another nonce", 0),
        ("right", "a pin", NONCE, 1),
    ],
    ids=["token", "certificate", "nonce", "user"],
)
def test_a_proof_of_something_else_is_refused(how: tuple[str, str, str, int]) -> None:
    assert turned(proof(*how)) == "user 0 does not have its token"
