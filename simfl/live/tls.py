"""Files and addresses of a live run across machines: certificate, key, tokens; TLS 1.3, nothing less."""

import ipaddress
import os
import secrets
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from simfl.crypto.certificate import self_signed
from simfl.errors import BadInput, reason

Address = tuple[str, int]
CERTIFICATE, KEY, TOKENS = "server.pem", "server.key", "tokens"
TOKEN_DIGITS = range(32, 129)  # of a token, hexadecimal: at least 128 bits


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key, password="")  # or OpenSSL would ask for one
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"{certificate}, {key}: no certificate with its key ({reason(error)})") from None
    return context


def client_context() -> ssl.SSLContext:
    """Return the context of a user, who checks the pinned fingerprint in place of names and authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER, hexadecimal."""
    return sha256(certificate).hexdigest()


def fingerprint_of(path: Path) -> str:
    """Return the fingerprint of a file's first certificate."""
    try:
        text = path.read_text(encoding="ascii")
        end = "-----END CERTIFICATE-----"
        return fingerprint(ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)].strip()))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: no certificate as PEM ({reason(error)})") from None


def pin(text: str) -> str:
    """Read a fingerprint: 64 hexadecimal digits, with colons or without."""
    digits = text.replace(":", "").lower()
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise BadInput(f"pin {text:.80}: must be the 64 hexadecimal digits of a SHA-256")
    return digits


def tokens(path: Path, users: Iterable[int]) -> dict[int, str]:
    """Read the tokens of these users: lines of a user's number and its token."""
    wanted, found = set(users), dict[int, str]()
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({reason(error)})") from None
    for number, line in enumerate(lines, 1):
        user, _, token = line.strip().partition(" ")
        good = user.isdecimal() and len(user) < 10 and len(token.strip()) in TOKEN_DIGITS
        if user and (not good or int(user) in found):
            raise BadInput(f"{path}:{number}: a line is a user's number and its token, of each user one")
        if user:
            found[int(user)] = token.strip()
    if missing := sorted(wanted - found.keys()):
        raise BadInput(f"{path}: no token of users {', '.join(map(str, missing[:10]))}")
    return {user: found[user] for user in wanted}


def users_of(text: str, users: int | None = None) -> list[int]:
    """Read numbers of users.

    >>> users_of("3-5,9")
    [3, 4, 5, 9]
    """
    found = set[int]()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 18:
            raise BadInput(f"user {text:.80}: must be a number, or numbers such as 3-5,9")
        if int(last or first) - int(first) not in range(10**6):
            raise BadInput(f"user {part}: must go up, by less than a million")
        found.update(range(int(first), int(last or first) + 1))
    if users is not None and max(found) >= users:
        raise BadInput(f"user {max(found)}: the run has users 0 to {users - 1}")
    return sorted(found)


def address(text: str, what: str) -> Address:
    """Read HOST:PORT, or a URL simfl://HOST:PORT."""
    try:
        parts = urlsplit(text if "://" in text else f"simfl://{text}")
        host, port = parts.hostname, parts.port
        if parts.scheme == "simfl" and host and port is not None and not parts.path.strip("/"):
            return host, port
    except ValueError:
        pass
    raise BadInput(f"{what} {text:.80}: must be HOST:PORT, such as 127.0.0.1:7000 or [::1]:7000")


def is_loopback(host: str) -> bool:
    """Say if an address is this machine's own: no name but localhost is believed."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_open(host: str, protected: bool) -> None:
    """Raise BadInput where a connection beyond this machine would go without TLS."""
    if not protected and not is_loopback(host):
        how = "a server needs --cert and --key (--make-cert DIR writes them), a user needs --pin"
        raise BadInput(f"{host} is beyond the loopback, and nothing goes there without TLS: {how}")


@dataclass(frozen=True)
class Made:
    """The files that a server needs, and its certificate's fingerprint."""

    certificate: Path
    key: Path
    tokens: Path
    pin: str


def make(folder: Path, users: int) -> Made:
    """Write a certificate, its key and a token for each user; BadInput where there is one of them."""
    certificate, key = self_signed("simfl")
    made = Made(folder / CERTIFICATE, folder / KEY, folder / TOKENS, "")
    lines = "".join(f"{user} {secrets.token_hex(32)}\n" for user in range(users)).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (made.certificate, made.key, made.tokens):
            if path.exists():
                raise BadInput(f"{path} is there: choose another folder, or remove it")
        for path, content in ((made.key, key), (made.tokens, lines), (made.certificate, certificate)):
            # Nobody else can read a secret, not even before it is all written.
            mode = 0o644 if path == made.certificate else 0o600
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({reason(error)})") from None
    return Made(made.certificate, made.key, made.tokens, fingerprint_of(made.certificate))
