"""References for primitives: a keystream in one piece, and galois' linear algebra."""

import galois
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def words(seed, length):
    """Return the first words of a seed's keystream, [1, length]."""
    raw = seed.tobytes()
    stream = Cipher(algorithms.AES(raw[:16]), modes.CTR(raw[16:28] + b"\0\0\0\2")).encryptor()
    return np.frombuffer(stream.update(bytes(4 * length)), "<u4").astype(np.uint32).reshape(1, -1)


def inverse(A, q):
    """Return the inverse of A over F_q; LinAlgError if it is singular."""
    field = galois.GF(q, compile="python-calculate")
    return np.array(np.linalg.inv(field(np.asarray(A).astype(object)))).astype(np.uint32)
