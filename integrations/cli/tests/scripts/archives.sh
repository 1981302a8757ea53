# needs: 7z mksquashfs unsquashfs zip unzip xz zstd cpio
# Archives of a tree, made and unpacked by programs that map, seek, and write from several threads.
cd "$D" || exit 1
mkdir t t/a t/a/b; for i in $(seq 100); do seq $i 500 > "t/a/f$i"; done; seq 200000 > t/big; ln -s a/f1 t/l; chmod 600 t/a/f2
all() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum; find . | wc -l; stat -c %a a/f2; readlink l); }
all t
7z a -bd -mmt=4 a.7z t > "$T/7z" 2>&1; echo "7z: $?"; 7z t -bd a.7z > /dev/null 2>&1; echo "test: $?"; mkdir u7; 7z x -bd -snl -ou7 a.7z > /dev/null 2>&1; all u7/t
7z d -bd a.7z t/a/f3 > /dev/null 2>&1; 7z l a.7z | grep -c 't/a/f'
mksquashfs t a.sq -quiet -no-progress -processors 4 > /dev/null 2>&1; echo "squashfs: $?"; unsquashfs -q -n -d us a.sq > /dev/null 2>&1; all us
zip -qry a.zip t; unzip -tq a.zip; mkdir uz; unzip -q -d uz a.zip; all uz/t; zip -qd a.zip 't/a/f4*'; unzip -l a.zip | tail -n 1 | awk '{ print $2 }'
tar cf a.tar t; xz -k -T4 a.tar; zstd -q -k -T4 a.tar; xz -t a.tar.xz; zstd -q -t a.tar.zst; xz -dc a.tar.xz | cmp - a.tar && zstd -dc a.tar.zst | cmp - a.tar && echo same
rm a.tar; xz -d a.tar.xz; tar xf a.tar --one-top-level=ut; all ut/t
(cd t && find . | cpio -o -H newc --quiet) > a.cpio; mkdir uc; (cd uc && cpio -id --quiet < ../a.cpio); all uc; ls
