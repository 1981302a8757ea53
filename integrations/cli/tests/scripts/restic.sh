# needs: restic
# A backup program written in Go, its repository, its cache and what it saves in a device: saved, changed, saved again,
# checked, restored, pruned.
cd "$D" || exit 1
export RESTIC_PASSWORD=p RESTIC_REPOSITORY="$D/repo" RESTIC_CACHE_DIR="$D/cache" HOME="$T"
mkdir src src/deep src/deep/er; for i in $(seq 200); do seq $i 400 > "src/f$i"; done
seq 300000 > src/deep/big; ln -s ../f1 src/deep/link; ln src/f2 src/deep/er/hard; mkdir src/empty; chmod 640 src/f3
touch -d '2001-02-03 04:05:06.123456789' src/f4
sum() { (cd "$1" && find . | sort; find . -type f | sort | xargs cat | sha256sum; stat -c '%n %a %s %h' f2 f3 f4 deep/link; stat -c %y f4); }
sum src > "$T/first"
restic -q init; echo "init: $?"; restic -q backup src; echo "backup: $?"
rm src/f5; echo more >> src/deep/big; mv src/f6 src/f7; mkdir src/new; cp src/f8 src/new
sum src > "$T/second"
restic -q backup src; echo "backup: $?"; restic -q check --read-data 2>&1; echo "check: $?"
restic snapshots --json 2> /dev/null | grep -o '"short_id"' | wc -l; restic -q ls latest | wc -l
restic -q restore latest --target r 2>&1; (cd r/src && sum .) | diff - "$T/second" && echo "the second is restored"
first=$(restic snapshots --json 2> /dev/null | grep -o '"short_id":"[0-9a-f]*"' | head -n 1 | cut -d '"' -f 4)
restic -q restore "$first" --target r1 2>&1; sum r1/src | diff - "$T/first" && echo "the first is restored"
restic -q forget --keep-last 1 --prune > /dev/null 2>&1; echo "prune: $?"; restic -q check; echo "check: $?"
