# Whole programs in the mount that is named. Silent where all is well.
set -euo pipefail
cd "$1"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=a@b
fail() { echo "$*" >&2; exit 1; }

git init -q repo
for i in 1 2 3; do seq "$i" 2000 >"repo/f$i"; git -C repo add .; git -C repo commit -qm "c$i"; done
git -C repo gc -q
git -C repo fsck --no-progress >/dev/null 2>&1 || fail "git fsck"
git clone -q repo clone 2>/dev/null
diff -r repo/f1 clone/f1
git -C clone checkout -q HEAD~2 2>/dev/null

for mode in delete wal; do
    rm -f db db-*
    sqlite3 db "pragma journal_mode=$mode; create table t(a,b)" >/dev/null
    adds() { for i in $(seq 20); do sqlite3 -cmd '.timeout 60000' db "insert into t values($i,$1)" >/dev/null; done; }
    adds 1 & adds 2 & wait
    said=$(sqlite3 db "select count(*) from t; pragma integrity_check" | tr '\n' ' ')
    [[ $said == "40 ok " ]] || fail "sqlite3 in $mode mode: $said"
done

mkdir src out
for i in $(seq 200); do head -c $((i * 37)) /dev/urandom >"src/f$i"; done
ln -s f1 src/link && ln src/f2 src/hard
tar cf a.tar src && tar xf a.tar -C out && diff -r src out/src
[[ $(stat -c %h out/src/f2) == 2 ]] || fail "tar lost a hard link"
cp -a src copy && diff -r src copy
truncate -s 10M sparse && echo x >>sparse && cp --sparse=always sparse sparse2 && cmp sparse sparse2
(($(stat -c %b sparse2) < 100)) || fail "cp made no holes"
dd if=src/f200 of=direct bs=4k conv=sync oflag=direct status=none

printf 'int f(void);\n#include <stdio.h>\nint main(void) { return printf("%%d\\n", f()) < 0; }\n' >m.c
printf 'int f(void) { return 7; }\n' >f.c
printf 'm: m.o f.o\n\tgcc -o m m.o f.o\n' >Makefile
make -s && [[ $(./m) == 7 ]] || fail "make"

# A Python that was built into the home of a user may lack what a venv needs; the system's may lack it, too.
if python3 -m venv --without-pip venv 2>/dev/null; then
    [[ $(venv/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)') == True ]] || fail "venv"
fi
find . -type f -print0 | xargs -0 md5sum | sort -o sums
rm -rf ./*
[[ -z $(ls -A) ]] || fail "rm left: $(ls -A)"
