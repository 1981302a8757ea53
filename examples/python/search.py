"""A text is searched inside the drive: a virtual file streams it through the kernel `grep`, and only the places of the
matches cross to the host.

    python3 search.py SOCKET
"""

import struct
import sys

import weldfs

LINES = 20_000


def main(socket):
    with weldfs.Client(socket) as fs:
        lines = (f"line {n} {'has an error' if n % 1000 == 7 else 'is fine'}\n" for n in range(LINES))
        text = "".join(lines).encode()
        fs.write_bytes("/today", text)
        # Made once, and a name like any other from then on: `weldfs cat disk.img:/errors` reads it as well.
        if not fs.exists("/errors"):
            fs.virt_register("/errors", "grep", "/today", weldfs.text_params("error"))
        before = fs.stats()["total"]
        with fs.vopen("/errors") as file:
            found = file.readall()
        after = fs.stats()["total"]
        # A match is two words: the line and the column, from 0.
        matches = list(struct.iter_unpack("<2I", found))
        print("first: line %d, column %d" % matches[0])
        print(f"{len(matches)} matches in {LINES} lines")
        moved = sum(after[way] - before[way] for way in ("link_bytes_in", "link_bytes_out"))
        print(f"less than 1 % of the text crossed the link: {moved < len(text) / 100}")


if __name__ == "__main__":
    main(*sys.argv[1:])
