"""Snappy's framing format as its description says, around Google's own library: -d reads a stream, -c writes one."""
import ctypes
import sys

snappy = ctypes.CDLL("libsnappy.so.1")
HEAD = b"\xff\x06\x00\x00sNaPpY"
TABLE = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    TABLE.append(i)


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def run(function, data, room):
    out, size = ctypes.create_string_buffer(max(room, 1)), ctypes.c_size_t(room)
    if function(data, ctypes.c_size_t(len(data)), out, ctypes.byref(size)) != 0:
        sys.exit("snappy refuses a block")
    return out.raw[: size.value]


def read(stream):
    if not stream.startswith(HEAD):
        sys.exit("no stream identifier")
    while stream:
        kind, size = stream[0], int.from_bytes(stream[1:4], "little")
        body, stream = stream[4 : 4 + size], stream[4 + size :]
        if len(body) != size:
            sys.exit("a chunk is cut")
        if kind == 0xFF or 0x80 <= kind <= 0xFE:
            continue
        if kind > 1:
            sys.exit("a chunk of unknown type %d" % kind)
        data = body[4:] if kind == 1 else run(snappy.snappy_uncompress, body[4:], 65536)
        if len(data) > 65536 or masked(data) != body[:4]:
            sys.exit("a chunk is too long or damaged")
        sys.stdout.buffer.write(data)


def write(content):
    sys.stdout.buffer.write(HEAD)
    for at in range(0, len(content), 65536):
        data = content[at : at + 65536]
        body = masked(data) + run(snappy.snappy_compress, data, 80000)
        sys.stdout.buffer.write(b"\0" + len(body).to_bytes(3, "little") + body)


content = sys.stdin.buffer.read()
read(content) if sys.argv[1] == "-d" else write(content)
