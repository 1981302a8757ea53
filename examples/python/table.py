"""A table under a weldfs:// URL, through fsspec: what pandas.read_csv(url, storage_options=...) does inside.

python3 table.py SOCKET      (pip install './bindings/python[fsspec]' before)
"""

import csv
import sys

import fsspec


def main(socket):
    options = {"socket": socket}
    with fsspec.open("weldfs:///tables/rain.csv.gz", "wt", compression="gzip", auto_mkdir=True, **options) as file:
        csv.writer(file).writerows([("month", "mm"), *(("jan", 71), ("feb", 58), ("mar", 64))])
    fs = fsspec.filesystem("weldfs", **options)
    print("found:", *fs.glob("/tables/*.csv*"))
    with fsspec.open("weldfs:///tables/rain.csv.gz", "rt", compression="infer", **options) as file:
        print("rain:", sum(int(row["mm"]) for row in csv.DictReader(file)), "mm")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} SOCKET")
    main(*sys.argv[1:])
