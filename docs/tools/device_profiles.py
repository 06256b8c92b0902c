"""Profiles of devices by name, from public benchmarks of them and the profile `reference`.

    python -m docs.tools.device_profiles     writes simfl/world/profiles/NAME.yaml

Benchmarks are those that sbc-bench collects (github.com/ThomasKaiser/sbc-bench, results/FILE.txt): 7-zip's
rating of one core, and bytes a second of AES by OpenSSL. AES takes what its benchmark says. All other work
takes as many times as long as in `reference` as the core's rating is below `REFERENCE_MIPS`, training too.
"""

from __future__ import annotations

from typing import NamedTuple

from docs.tools import ROOT
from simfl.world import profiles

REFERENCE_MIPS = 3_300
"""7-zip's rating of one core of the machine of `reference`: 3,158 to 3,321 for the CPU time that it had."""
AES = {"prg_element": 4, "aead_byte": 1}
"""Kind of work -> bytes of AES that it takes."""


class Device(NamedTuple):
    """A device's benchmarks, and what is weak about them."""

    what: str
    source: str
    mips: float
    """7-zip's rating of its fastest core."""
    aes_mbps: float
    """Megabytes a second of AES-128 on that core."""
    weakness: str


CBC = "AES by CBC, which its AES instructions do not do in parallel: masks may be several times cheaper"
DEVICES = {
    "raspberry_pi_4": Device(
        "Raspberry Pi 4 B, 64 bit, 1.8 GHz", "3InF", 1752, 50.6, "has no AES instructions"
    ),
    "jetson_nano": Device("Jetson Nano, 1.48 GHz, without its GPU", "4rLX", 1578, 755.0, CBC),
    "phone_2020": Device(
        "Snapdragon 865 on a board (QRB5165)", "49kx", 3898, 2218.7, f"cooled as no phone is; {CBC}"
    ),
    "phone_2024": Device(
        "Cortex-X925 as in phones of late 2024",
        "fcm1253",
        6704 * 3.62 / 3.9,
        2222.0 * 14 / 10 * 3.62 / 3.9,
        "a desktop's core of 3.9 GHz, scaled to 3.62 GHz (a phone's, from memory, not checked); AES of 256"
        f" bits with 14 rounds, scaled to 10; {CBC}",
    ),
    "laptop": Device("Apple M1 Pro", "443N", 5010, 3600.0, "AES by GCM with 256 bits; a fast laptop of 2021"),
}


def written(device: Device) -> str:
    """Return the file of a device's profile."""
    rates = profiles.load("reference").seconds
    slower = REFERENCE_MIPS / device.mips
    seconds = {kind: float(f"{slower * rate:.3g}") for kind, rate in rates.items()}
    seconds |= {kind: float(f"{size / device.aes_mbps / 1e6:.3g}") for kind, size in AES.items()}
    description = (
        f"{device.what}: not measured by simfl. AES from sbc-bench's results/{device.source}.txt, all else"
        f" `reference` times {slower:.2f}, by 7-zip's ratings of one core. Weak: training and Python by a"
        f" compressor's speed; {device.weakness}. Measure yours by `simfl calibrate`"
    )
    return profiles.text({"description": description, "seconds": seconds})


if __name__ == "__main__":
    for name, device in DEVICES.items():
        file = ROOT / "simfl" / "world" / "profiles" / f"{name}.yaml"
        file.write_text(written(device), encoding="utf-8")
