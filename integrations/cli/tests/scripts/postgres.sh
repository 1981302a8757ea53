# needs: setpriv /usr/lib/postgresql/*/bin/postgres /usr/lib/postgresql/*/bin/pgbench
# A cluster of its own, as a user without rights: loaded, used by four clients, killed in the middle, recovered.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
mkdir "$D/pg" && chown 65534:65534 "$D/pg" && chmod 700 "$D/pg"; mkdir "$T/pg"; chown 65534:65534 "$T/pg"; chmod 711 "$T"
be() { cd / && exec env HOME="$T/pg" PATH="$bin:$PATH" LC_ALL=C setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
as() { (be "$@"); }
sql() { as psql -X -q -h "$T/pg" -d bench -At -c "$1"; }
# A child of this shell, so that a killed one is gone when it was waited for.
start() {
    be postgres -D "$D/pg" -c listen_addresses= -c unix_socket_directories="$T/pg" > "$T/pg/log" 2>&1 &
    server=$!
    for i in $(seq 600); do as pg_isready -q -h "$T/pg" && return; sleep 0.1; done
    echo "no server"; tail -n 5 "$T/pg/log"; exit 1
}
acknowledged() { n=$(cat "$T/pg/acknowledged" 2> /dev/null); echo "${n:-0}"; }
trap 'kill -9 $server 2> /dev/null' EXIT
as initdb -D "$D/pg" -E UTF8 --locale=C -A trust --data-checksums > "$T/pg/initdb" 2>&1 || { tail -n 5 "$T/pg/initdb"; exit 1; }
start
as createdb -h "$T/pg" bench; as pgbench -q -i -s 3 -h "$T/pg" bench > "$T/pg/load" 2>&1; echo "loaded: $?"
sql 'select count(*) from pgbench_accounts'
as pgbench -n -c 4 -j 2 -t 100 -h "$T/pg" bench > "$T/pg/bench" 2>&1; echo "ran: $?"
grep -o 'transactions actually processed: .*' "$T/pg/bench"; sql 'select count(*) from pgbench_history'
sql 'create table seen(n int)'
# Every commit that is acknowledged to this client is noted outside, until the server is killed under it.
(n=0; while sql "insert into seen values($((n + 1)))" 2> /dev/null; do n=$((n + 1)); echo $n > "$T/pg/next"; mv "$T/pg/next" "$T/pg/acknowledged"; done) &
as pgbench -n -c 4 -j 2 -T 60 -h "$T/pg" bench > "$T/pg/killed" 2>&1 &
while [ "$(acknowledged)" -lt 20 ]; do sleep 0.1; done
kill -9 $(ps -o pid= --ppid $server) $server 2> /dev/null; wait; start
[ "$(sql 'select count(*) from seen')" -ge "$(acknowledged)" ] && echo "every acknowledged commit is there"
[ "$(sql 'select sum(abalance) from pgbench_accounts')" = "$(sql 'select sum(delta) from pgbench_history')" ] && echo "the sums agree"
as pg_amcheck -h "$T/pg" -d bench --install-missing > "$T/pg/amcheck" 2>&1; echo "amcheck: $?"
sql 'vacuum full'; sql 'select count(*) from pgbench_branches'
kill -INT $server; wait $server; echo "stopped: $?"
as pg_checksums -c -D "$D/pg" | grep -i 'bad checksums'
