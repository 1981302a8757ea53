# 5,000 files unpacked inside the device and packed again: the second archive equals the first bit by bit.
set -eu
work=$2
mkdir -p "$work/tree"
python3 -c "
import os, random, sys
r = random.Random(2)
for i in range(5000):
    d = os.path.join(sys.argv[1], f'd{i % 50:02}')
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, f'file-{i:05}'), 'wb') as f:
        f.write(r.randbytes(r.choice([0, 1, 100, 4095, 4096, 4097, r.randrange(30000)])))" "$work/tree"
pack() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@1700000000 -C "$1" -cf "$2" tree; }
pack "$work" "$work/first.tar"
mkdir "$1/unpacked"
tar -C "$1/unpacked" -xf "$work/first.tar"
pack "$1/unpacked" "$1/second.tar"
cmp "$work/first.tar" "$1/second.tar"
count=$(find "$1/unpacked" -type f | wc -l)
[ "$count" = 5000 ] || { echo "only $count files"; exit 1; }
echo "tar: $count files, $(stat -c %s "$1/second.tar") bytes, packed again bit-identically"
