# needs: fio
# Engines that libc has no part in: asynchronous calls of the kernel, direct, deep; shared mappings.
cd "$D" || exit 1
job() {
    engine=$1; shift
    fio --output="$T/out" --directory="$D" --name=job-"$engine" --ioengine="$engine" --size=8m --verify=crc32c --verify_fatal=1 "$@"
    echo "$engine $*: $?"; [ -z "$(grep -o 'fio: .*' "$T/out")" ] || grep -o 'fio: .*' "$T/out" | head -n 3
}
for engine in libaio io_uring posixaio; do
    job $engine --rw=randwrite --bs=4k --iodepth=16
    job $engine --rw=write --bs=128k --iodepth=8 --direct=1
    job $engine --rw=randrw --bs=4k --iodepth=32 --direct=1 --numjobs=2 --size=2m
done
job mmap --rw=randwrite --bs=4k --size=4m
job mmap --rw=write --bs=64k --size=4m
job splice --rw=write --bs=64k --size=2m --verify=0
