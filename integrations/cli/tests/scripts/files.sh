# ls cat cp mv rm mkdir rmdir ln touch stat chmod
cd "$D" || exit 1
umask 022
mkdir -p a/b/c; echo data > a/b/c/f; cp a/b/c/f a/g; mv a/g a/h; cat a/h
cp -r a z; diff -r a z && echo trees equal
cp -a a y; mv y yy; ls yy/b/c
ln a/h hard; stat -c '%h %s %a %F' hard; ln -s a/h soft; readlink soft; cat soft; ls -l soft | cut -c1-10
chmod 600 hard; stat -c %a a/h; chmod u+x,g+r hard; stat -c %a hard
touch -d '2001-02-03 04:05:06.123456789 UTC' hard; stat -c %Y hard; TZ=UTC stat -c %y hard
mkdir e; rmdir e; rmdir a 2>/dev/null || echo "not empty"
rm -r z; test -e z || echo gone
rm -f nothing; rm nothing 2>/dev/null || echo "rm complains"
mkdir 'sp ace'; echo q > 'sp ace/new
line'; ls 'sp ace' | wc -l
install -m 640 hard inst; stat -c %a inst
truncate -s 100000 big; stat -c '%s' big; truncate -s 10 big; wc -c < big
ls -1 | sort; ls -d a*; basename "$(realpath a/../soft)"
cp --sparse=always big sparse; cmp big sparse && echo sparse same
mv -n hard inst; test -e hard && echo "mv -n kept"
cp -p hard kept; test ! kept -nt hard && echo times kept
test -x hard && echo executable; test -w a && echo writable
mktemp -p . tmp.XXXXXX | cut -c1-6
head -c 5000 /dev/zero | split -b 1000 - part.; ls part.* | wc -l; cat part.* | wc -c
du -s --apparent-size -B1 inst | cut -f1
ln -s /nowhere-else dangling; cat dangling 2>/dev/null || echo "dangling"
ln -s "$D/a" abs; ls abs/; cat abs/b/c/f
(cd abs && cat b/c/f)
