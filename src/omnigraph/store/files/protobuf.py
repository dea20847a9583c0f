"""Protobuf messages as lists of numbered parts: as much of the format as Lance's metadata uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

Parts: TypeAlias = tuple[tuple[int, int | bytes], ...]

_VARINT: Final = 0
_BYTES: Final = 2


def read_message(message: bytes) -> Parts:
    """Split a protobuf message into its (field number, value) parts; ValueError when it is damaged.

    >>> read_message(b"\\x12\\x01n\\x18\\x07")
    ((2, b'n'), (3, 7))
    """
    parts: list[tuple[int, int | bytes]] = []
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        number, position = _read_varint(message, position)
        if key & 7 == _VARINT:
            parts.append((key >> 3, number))
        elif key & 7 != _BYTES or position + number > len(message):
            raise ValueError(f"a part of wire type {key & 7} and length {number} ends after the message")
        else:
            parts.append((key >> 3, message[position : position + number]))
            position += number
    return tuple(parts)


def write_message(parts: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Join (field number, value) parts to a message.

    >>> write_message(((2, b"n"), (3, 7)))
    b'\\x12\\x01n\\x18\\x07'
    """
    message = bytearray()
    for field, value in parts:
        if isinstance(value, int):
            message += _varint(field << 3 | _VARINT) + _varint(value)
        else:
            message += _varint(field << 3 | _BYTES) + _varint(len(value)) + value
    return bytes(message)


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(message):
            raise ValueError("a message ends within a number")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position


def _varint(number: int) -> bytes:
    """Write a number seven bits at a time, lowest first.

    >>> _varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
