# needs: fio
# Blocks with checksums of their own, written and read back; in turn, at random, from several processes and threads.
cd "$D" || exit 1
job() {
    fio --output="$T/out" --directory="$D" --ioengine=psync --size=8m --verify=crc32c --verify_fatal=1 --randseed=7 "$@"
    echo "$1: $?"
}
job --name=seq --rw=write --bs=128k --end_fsync=1
job --name=rand --rw=randwrite --bs=4k --fsync=64
job --name=mixed --rw=randrw --bsrange=512-64k --bs_unaligned=1 --size=4m
job --name=processes --rw=randwrite --bs=4k --numjobs=3 --size=2m
job --name=threads --rw=randwrite --bs=8k --numjobs=3 --thread --size=2m
job --name=durable --rw=write --bs=4k --size=256k --sync=1
for engine in sync vsync pvsync pvsync2; do
    fio --output="$T/out" --directory="$D" --name=$engine --ioengine=$engine --rw=randwrite --bs=4k --size=2m --verify=crc32c
    echo "$engine: $?"
done
ls | wc -l
