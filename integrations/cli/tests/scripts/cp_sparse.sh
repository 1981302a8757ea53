# needs: cp
# Holes that cp and others make, keep and find.
cd "$D" || exit 1
few() { test "$(stat -c %b "$1")" -lt "$2" && echo "$1 has holes"; }
truncate -s 64M f; for at in 0 5 31 63; do printf "at $at" | dd of=f bs=1M seek=$at conv=notrunc status=none; done
few f 2000; sha256sum < f
cp --sparse=auto f auto; cmp f auto && few auto 2000
cp --sparse=always f always; cmp f always && few always 2000
head -c 8M /dev/zero > zeros; cp --sparse=always zeros none; few none 100; stat -c %s none
cp --sparse=never none full; cmp none full && test "$(stat -c %b full)" -ge 16384 && echo full
cp --reflink=auto f linked; cmp f linked && echo reflink; cp --reflink=always f no 2> /dev/null && echo reflinked
tar cSf t.tar f; test "$(stat -c %s t.tar)" -lt 200000 && echo packed; mkdir x; tar xSf t.tar -C x; cmp f x/f && few x/f 2000
fallocate --dig-holes zeros && few zeros 100; fallocate -p -o 0 -l 4096 full && stat -c %s full; cmp none full && echo punched
fallocate -l 1M made; stat -c %s made; fallocate -n -o 1M -l 1M made; stat -c %s made
dd if=f of=d bs=64k conv=sparse status=none; truncate -s 64M d; cmp f d && few d 2000
