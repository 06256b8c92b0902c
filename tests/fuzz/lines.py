"""Mutations of a scenario's text: bytes flipped, lines dropped, doubled, swapped, indented, cut off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Way = Callable[[list[bytes], Random], None]

TOKENS = (
    b"*a", b"&a ", b"<<: ", b"<<: *a", b"!!python/object:os.system ", b"\t", b"\0", b"\x1b", b"\xef\xbb\xbf",
    b"? ", b"- ", b"{", b"[", b"]", b"}", b"|", b">", b"%YAML 1.1", b"---", b"...", b"#", b": ", b":", b"'",
    b'"', b",", b"\r", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"\\ud800", b"~",
    b"0x", b"_", b"e999",
)  # fmt: skip


def mutate(data: bytes, rng: Random) -> tuple[bytes, list[str]]:
    """Mutated text, and the names of what was done to it."""
    lines, done = data.splitlines(keepends=True), []
    for _ in range(1 + min(4, int(rng.expovariate(1.0)))):
        how = rng.choice(WAYS)
        if lines:
            how(lines, rng)
            lines = b"".join(lines).splitlines(keepends=True)
        done.append(how.__name__.strip("_"))
    return b"".join(lines), done


def block(lines: list[bytes], start: int) -> int:
    """Where what hangs on a line, deeper than it, is over."""
    depth = _depth(lines[start])
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or _depth(lines[end]) > depth):
        end += 1
    return end


def _depth(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" "))


def _flip(lines: list[bytes], rng: Random) -> None:
    i = rng.randrange(len(lines))
    line = bytearray(lines[i])
    line[rng.randrange(len(line))] ^= 1 << rng.randrange(8)
    lines[i] = bytes(line)


def _byte(lines: list[bytes], rng: Random) -> None:
    i = rng.randrange(len(lines))
    line = bytearray(lines[i])
    line[rng.randrange(len(line))] = rng.randrange(256)
    lines[i] = bytes(line)


def _digit(lines: list[bytes], rng: Random) -> None:
    """Another digit, or one more, where a number stands."""
    digits = [(i, j) for i, line in enumerate(lines) for j, byte in enumerate(line) if chr(byte).isdigit()]
    if digits:
        i, j = rng.choice(digits)
        lines[i] = lines[i][:j] + rng.choice(b"0123456789-.eE").to_bytes() + lines[i][j + rng.randrange(2) :]


def _token(lines: list[bytes], rng: Random) -> None:
    i = rng.randrange(len(lines))
    j = rng.randrange(len(lines[i]))
    lines[i] = lines[i][:j] + rng.choice(TOKENS) + lines[i][j:]


def _drop(lines: list[bytes], rng: Random) -> None:
    del lines[rng.randrange(len(lines))]


def _drop_block(lines: list[bytes], rng: Random) -> None:
    start = rng.randrange(len(lines))
    del lines[start : block(lines, start)]


def _double(lines: list[bytes], rng: Random) -> None:
    """A key, with what hangs on it, twice."""
    start = rng.randrange(len(lines))
    lines[start:start] = lines[start : block(lines, start)]


def _swap(lines: list[bytes], rng: Random) -> None:
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]


def _indent(lines: list[bytes], rng: Random) -> None:
    i = rng.randrange(len(lines))
    lines[i] = lines[i].lstrip(b" ") if rng.random() < 0.5 else b" " * rng.choice((1, 2, 4)) + lines[i]


def _truncate(lines: list[bytes], rng: Random) -> None:
    i = rng.randrange(len(lines))
    lines[i] = lines[i][: rng.randrange(len(lines[i]))]
    del lines[i + 1 :]


WAYS: tuple[Way, ...] = (
    _flip, _byte, _digit, _digit, _digit, _token, _drop, _drop_block, _double, _swap, _indent, _truncate,
)  # fmt: skip
