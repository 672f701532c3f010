"""A seeded permutation of ``range(size)`` that is computed point by point, without a table.

A balanced Feistel network permutes the smallest range of ``4**k`` numbers that covers ``size``; a value that falls
outside is permuted again until it falls inside ("cycle walking"), which keeps the map a bijection. The covering range
is less than four times ``size``, so a point costs fewer than four walks on average, whatever the size.
"""

from __future__ import annotations

from hashlib import blake2b

ROUNDS = 8


def permute(index: int, size: int, key: bytes) -> int:
    """Image of ``index`` under the permutation of ``range(size)`` that ``key`` selects.

    Args:
        index: a number in ``range(size)``.
        size: number of points, at least 1 and at most 2**62.
        key: at most 64 bytes; equal keys give equal permutations on every machine.

    Raises:
        ValueError: ``index`` is not in ``range(size)``.
    """
    if not 0 <= index < size <= 1 << 62:
        raise ValueError(f"index {index} is not in a range of {size} points")
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    value = _feistel(index, half_bits, key)
    while value >= size:
        value = _feistel(value, half_bits, key)
    return value


def _feistel(value: int, half_bits: int, key: bytes) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for number in range(ROUNDS):
        left, right = right, left ^ (_mix(right, number, key) & mask)
    return left << half_bits | right


def _mix(value: int, number: int, key: bytes) -> int:
    message = bytes([number]) + value.to_bytes(8, "little")
    return int.from_bytes(blake2b(message, digest_size=8, key=key).digest(), "little")
