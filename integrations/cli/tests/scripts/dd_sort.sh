cd "$D" || exit 1
dd if=/dev/zero bs=64k count=40 of=z status=none; wc -c < z
seq 1 300000 | dd of=s bs=1M status=none iflag=fullblock; sha256sum < s
dd if=s of=part bs=1000 skip=3 count=5 status=none; sha256sum < part
dd if=part of=s bs=1000 seek=7 conv=notrunc status=none; sha256sum < s
dd if=s of=t bs=4k conv=fsync status=none; cmp s t && echo same
dd if=/dev/zero of=holes bs=1 count=0 seek=1M status=none; wc -c < holes
dd if=part of=app oflag=append conv=notrunc status=none; dd if=part of=app oflag=append conv=notrunc status=none; wc -c < app
shuf --random-source=z -i 1-200000 > shuffled; sort -n -S 1M -T . shuffled > sorted; sort -c -n sorted && wc -l < sorted; sha256sum < sorted
head -c 100 s | tail -c 10; tail -n 2 sorted; wc sorted; cut -c1-2 sorted | uniq -c | head -2; tac sorted | head -1; sort -u -o sorted sorted; wc -l < sorted
