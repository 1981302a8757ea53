# needs: borg
# A backup program whose repository, cache and archives' sources lie in a device: locks, memory maps, segments written
# anew, damage that is noticed.
cd "$D" || exit 1
export BORG_BASE_DIR="$D/base" BORG_PASSPHRASE=p BORG_RELOCATED_REPO_ACCESS_IS_OK=yes HOME="$T"
mkdir src src/deep src/deep/er; for i in $(seq 200); do seq $i 400 > "src/f$i"; done
seq 300000 > src/deep/big; ln -s ../f1 src/deep/link; ln src/f2 src/deep/er/hard; mkdir src/empty; chmod 640 src/f3
touch -d '2001-02-03 04:05:06.123456789' src/f4; truncate -s 300000 src/hole
sum() { (cd "$1" && find . | sort; find . -type f | sort | xargs cat | sha256sum; stat -c '%n %a %s %h' f2 f3 f4 deep/link; stat -c %y f4); }
sum src > "$T/first"
borg init -e repokey repo 2> /dev/null; echo "init: $?"; borg create repo::one src 2> /dev/null; echo "create: $?"
rm src/f5; echo more >> src/deep/big; mv src/f6 src/f7; mkdir src/new; cp src/f8 src/new
borg create -C lz4 repo::two src 2> /dev/null; echo "create: $?"
borg check --verify-data repo 2> /dev/null; echo "check: $?"; borg list --short repo
borg diff repo::one two 2> /dev/null | wc -l
mkdir x && cd x && borg extract --sparse "$D/repo::one" 2> /dev/null; sum src | diff - "$T/first" && echo restored
cd ..; borg delete repo::one 2> /dev/null; borg compact repo 2> /dev/null; echo "compact: $?"
borg check repo 2> /dev/null; echo "check: $?"
# A byte of the largest segment becomes another one.
big=$(find repo/data -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
printf '\377\000\377' | dd of="$big" bs=1 seek=5000 conv=notrunc 2> /dev/null
borg check repo > "$T/check" 2>&1; echo "check of a damaged one: $?"
