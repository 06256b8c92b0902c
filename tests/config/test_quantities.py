"""Numbers with units against `fractions`; what cannot be told is refused or left as it is."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.config.quantities import UNITS, in_unit, meant

FACTORS = {  # unit of the key -> what is written -> how many of the former it is
    "s": {"ns": Fraction(1, 10**9), "ms": Fraction(1, 1000), "min": Fraction(60), "h": Fraction(3600)},
    "Mbit/s": {
        "bit/s": Fraction(1, 10**6),
        "kbit/s": Fraction(1, 1000),
        "Gbps": Fraction(1000),
        "MB/s": Fraction(8),
    },
    "GB": {"MB": Fraction(1, 1000), "GiB": Fraction(2**30, 10**9)},
    "J": {"mWh": Fraction(36, 10), "Wh": Fraction(3600)},
    "1": {"%": Fraction(1, 100)},
}


@given(st.decimals(0, 10**6, places=3), st.data())
def test_a_quantity_is_its_nearest_float(number: object, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(FACTORS)))
    written = data.draw(st.sampled_from(sorted(FACTORS[key])))
    expected = float(Fraction(str(number)) * FACTORS[key][written])
    for space in ("", " "):
        assert in_unit(f"{number}{space}{written}", key) == expected


@pytest.mark.parametrize("value", ["1e-3", "5", ".5", "12:30", "1_000", "fixed", "", None, True, 5, [5]])
def test_other_values_stay_as_they_are(value: object) -> None:
    for key in UNITS:
        assert in_unit(value, key) is value


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("5m", "s", "'5m' may be minutes or milliseconds: write 5min or 5ms"),
        ("5 parsec", "s", "unknown unit 'parsec': its units are ns, us, ms, s, min, h, d"),
        ("5 Mb", "GB", "unknown unit 'Mb': its units are kB, MB, GB"),
        ("10 mbps", "Mbit/s", "unknown unit 'mbps': its units are bit/s"),
        ("5 in 10", "1", "unknown unit 'in 10': a fraction takes a number from 0 to 1, or %"),
    ],
)
def test_an_unknown_unit_is_answered(text: str, key: str, says: str) -> None:
    with pytest.raises(ValueError, match="^" + says):
        in_unit(text, key)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10k", "10000"),
        ("1,000", "1000"),
        ("1_000_000", "1000000"),
        ("1.5M", "1500000"),
        ("5", "5"),
        ("5,5", None),
    ],
)
def test_a_plain_number_is_offered(text: str, plain: str | None) -> None:
    assert meant(text) == plain
