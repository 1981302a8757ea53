# needs: mdb_load mdb_dump mdb_stat
# A database that lives in a shared mapping, with a lock table in another: written and read by several processes.
cd "$D" || exit 1
pairs() { for i in $(seq "$2"); do printf '%s-%05d\n%s\n' "$1" "$i" "value $i of $1"; done; }
mkdir env
pairs first 2000 | mdb_load -T env && echo loaded
for who in a b c; do pairs $who 500 | mdb_load -T env & done
for i in 1 2 3; do mdb_stat env > /dev/null || echo "stat failed"; done
wait
mdb_stat env | grep Entries
mdb_dump -p env | sha256sum
mdb_dump -p env | grep -c '^ [abc]-'
# One file, another database beside the first; a copy of it, compacted.
pairs single 100 | mdb_load -n -T one.mdb && mdb_dump -n -p one.mdb | sha256sum
mkdir copy && mdb_copy -c env copy && mdb_dump -p copy | sha256sum
# A writer that is killed in the middle of a transaction leaves its lock to the next.
mkfifo "$T/pipe"
mdb_load -T env < "$T/pipe" & writer=$!
exec 9> "$T/pipe"; pairs killed 150 >&9; sleep 0.5
kill -9 $writer; wait $writer 2> /dev/null; exec 9>&-
pairs last 10 | mdb_load -T env && mdb_dump -p env | grep -c '^ last-'
mdb_dump -p env | grep -c '^ first-'
