# needs: sqlite3
# A write-ahead log: its index is shared memory of the processes that use the database.
cd "$D" || exit 1
db() { sqlite3 -cmd '.timeout 60000' db "$@"; }
db 'pragma journal_mode=wal; create table t(a integer primary key, b text);'
writer() { for i in $(seq 20); do db "insert into t(b) values('$1$i')" || echo "writer $1 at $i"; done; }
writer x & writer y & writer z &
for i in 1 2 3 4 5; do db 'select count(*) >= 0, max(b) >= "x" or 1 from t'; done
wait
db 'select count(*), count(distinct b) from t; pragma integrity_check;'
# A reader keeps what it began with while another process commits.
db 'begin' 'select count(*) from t' '.shell sqlite3 db "insert into t(b) values(0)"' 'select count(*) from t' 'commit' \
    'select count(*) from t' '.shell ls db-*'
# A writer that dies leaves a log; the next process recovers from it.
sqlite3 db 'begin immediate' 'insert into t(b) values("never")' '.shell kill -9 $PPID' > /dev/null 2>&1
db 'select count(*) from t' 'pragma integrity_check' 'pragma wal_checkpoint(truncate)'
db 'pragma mmap_size=268435456' 'select count(*), max(a) from t'
db 'pragma journal_mode=delete'; ls
