"""A log of checksummed records, each durable before the next; then one is damaged, and found.

python3 log.py SOCKET        (pip install ./bindings/python before)
"""

import sys

import weldfs


def main(socket):
    with weldfs.Client(socket, durable=True) as fs, fs.open("/log", "w+b") as log:
        places = []
        for number in range(1000):
            record = f"record {number}".encode()
            offset, _ = log.append_checksum_write(record)  # one command, persistent when it returns
            places.append((len(record), offset))
        for size, offset in places:
            log.verify(size, offset)  # only the verdict crosses the link
        print(f"{len(places)} records, all sound")

        log.pwrite(b"X", places[500][1])
        damaged = []
        for number, (size, offset) in enumerate(places):
            try:
                log.verify(size, offset)
            except weldfs.ChecksumError:
                damaged.append(number)
        print(f"damaged: {damaged}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SOCKET")
    main(*sys.argv[1:])
