"""The random rotation against a Hadamard matrix."""

import hashlib

import numpy as np
import pytest
from scipy.linalg import hadamard

from simfl.crypto import rotation


def seed(name: str) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(name.encode()).digest(), np.uint8).reshape(1, 32)


@pytest.mark.parametrize("n", [1, 2, 8, 64, 256])
def test_rotation_is_an_orthogonal_matrix(n: int) -> None:
    """Rows of the identity give the matrix: H with signs in its columns, over sqrt(n)."""
    matrix = np.concatenate([rotation.rotate(row[None], seed("x")) for row in np.eye(n)]).T
    assert np.allclose(matrix @ matrix.T, np.eye(n))
    signs = np.sign(matrix[0])
    assert np.allclose(matrix, hadamard(n) * signs / np.sqrt(n))
    assert n < 64 or 0.2 < (signs > 0).mean() < 0.8


@pytest.mark.parametrize("d", [1, 2, 3, 650, 1000])
def test_unrotate_is_the_inverse(d: int) -> None:
    x = np.random.default_rng(d).normal(size=(1, d))
    y = rotation.rotate(x, seed("y"))
    assert y.shape == (1, rotation.padded(d))
    assert np.allclose(rotation.unrotate(y, seed("y"), d), x)
    assert np.isclose(np.linalg.norm(y), np.linalg.norm(x))


def test_rotation_flattens_a_spike() -> None:
    """One coordinate of 4096: its rotation has the same magnitude everywhere."""
    x = np.zeros((1, 4096))
    x[0, 17] = 3.0
    assert np.allclose(np.abs(rotation.rotate(x, seed("z"))), 3 / 64)


def test_another_seed_is_another_rotation() -> None:
    x = np.ones((1, 64))
    assert not np.allclose(rotation.rotate(x, seed("a")), rotation.rotate(x, seed("b")))
