# needs: redis-server redis-cli
# An append-only file: loaded with keys, its server killed, read again; rewritten, and read again.
cd "$D" || exit 1
cli() { redis-cli -s "$T/s" "$@"; }
# Its socket is the host's: the file system has none.
start() {
    redis-server --port 0 --unixsocket "$T/s" --dir "$D" --appendonly yes --appendfsync "$1" --save '' \
        --logfile "$T/log" --pidfile "$T/pid" --daemonize no > /dev/null 2>&1 &
    server=$!
    for i in $(seq 600); do [ "$(cli ping 2> /dev/null)" = PONG ] && return; sleep 0.05; done
    echo "no server"; cat "$T/log"; exit 1
}
trap 'kill -9 $server 2> /dev/null' EXIT
start always
awk 'BEGIN { for (i = 1; i <= 5000; i++) printf "SET key:%d value-%d\r\n", i, i * i }' > "$T/load"
cli --pipe < "$T/load" | grep -o 'errors: [0-9]*, replies: [0-9]*'
for i in 1 2 3 4 5; do cli rpush list $i > /dev/null; done
kill -9 $server; wait $server 2> /dev/null; rm -f "$T/s"
start everysec
cli dbsize; cli get key:77; cli lrange list 0 -1 | tr '\n' ' '; echo
cli bgrewriteaof > /dev/null
while cli info persistence | grep -q 'aof_rewrite_in_progress:1\|aof_rewrite_scheduled:1'; do sleep 0.05; done
cli info persistence | grep -c 'aof_last_bgrewrite_status:ok'; cli set last one; cli save
cli shutdown nosave; wait $server; rm -f "$T/s"
ls; ls appendonlydir | sed 's/[0-9]\+/N/'
redis-check-aof appendonlydir/appendonly.aof.manifest > "$T/check" 2>&1; echo "check: $?"
start no
cli dbsize; cli get last; cli shutdown nosave; wait $server
