"""Integers and bytes in a compact encoding, for the mergeable state in a summary."""

from __future__ import annotations


class VarintWriter:
    """Builds bytes from unsigned varints (7 bits a byte, low first), signed integers and byte strings."""

    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        """Writes a number that is not negative."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def signed(self, value: int) -> None:
        """Writes a number of either sign."""
        self.number(2 * value if value >= 0 else -2 * value - 1)

    def wide(self, value: int) -> None:
        """Writes an integer of any size, most of whose low bits are zero."""
        zeros = (value & -value).bit_length() - 1 if value else 0
        self.number(zeros)
        kept = value >> zeros
        self.string(kept.to_bytes(kept.bit_length() // 8 + 1, "little", signed=True))

    def string(self, value: bytes) -> None:
        """Writes bytes, with their length in front."""
        self.number(len(value))
        self.data += value


class VarintReader:
    """Reads back what a Writer wrote, in the same order. Raises ValueError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """Returns the next number, one that is not negative."""
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def signed(self) -> int:
        """Returns the next number of either sign."""
        value = self.number()
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def wide(self) -> int:
        """Returns the next wide number."""
        zeros = self.number()
        return int.from_bytes(self.string(), "little", signed=True) << zeros

    def string(self) -> bytes:
        """Returns the next bytes."""
        return self._take(self.number())

    def finish(self) -> None:
        """Raises ValueError where bytes are left over."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise ValueError("the bytes end too early")
        self._at, begin = end, self._at
        return self._data[begin:end]
