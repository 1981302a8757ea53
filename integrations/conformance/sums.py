"""The checksums of the page, bit by bit: none of them is in the standard library but CRC-32."""

import zlib


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data):
    """CRC-32C: Castagnoli, reflected, initial value and final xor all ones."""
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def crc32(data):
    """CRC-32 of IEEE 802.3."""
    return zlib.crc32(data)


def masked(data):
    """CRC-32C as LevelDB stores it: rotated right by 15, plus a constant."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283
