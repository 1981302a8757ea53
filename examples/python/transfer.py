"""A fused program from its text: money goes from one file to the other, or nothing happens.

python3 transfer.py SOCKET ../programs/transfer.txt
"""

import errno
import sys
from pathlib import Path

import weldfs


def main(socket, program):
    def number(path):
        return int.from_bytes(fs.read_bytes(path, 8), "little")

    with weldfs.Client(socket, durable=True) as fs:
        fs.write_bytes("/alice", (100).to_bytes(8, "little"))
        fs.write_bytes("/bob", (20).to_bytes(8, "little"))
        with fs.program(Path(program).read_text(), {"AMOUNT": 8}, results=("rest",)) as transfer:
            for amount in (40, 60, 80):
                try:
                    done = transfer.run(fs, {"AMOUNT": amount.to_bytes(8, "little")})
                    print(f"{amount}: {done['rest']} left")
                except weldfs.ProgramError as error:
                    if error.errno != errno.EDQUOT:
                        raise
                    print(f"{amount}: not enough, step {error.step}")
        print(f"alice {number('/alice')}, bob {number('/bob')}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} SOCKET PROGRAM")
    main(*sys.argv[1:])
