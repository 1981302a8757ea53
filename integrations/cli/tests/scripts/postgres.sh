# needs: setpriv /usr/lib/postgresql/*/bin/postgres /usr/lib/postgresql/*/bin/pgbench
# A cluster of its own, as a user without rights: loaded, used by four clients, killed in the middle, recovered.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
mkdir "$D/pg" && chown 65534:65534 "$D/pg" && chmod 700 "$D/pg"; mkdir "$T/pg"; chown 65534:65534 "$T/pg"; chmod 711 "$T"
as() { (cd / && HOME="$T/pg" PATH="$bin:$PATH" LC_ALL=C setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"); }
sql() { as psql -X -q -h "$T/pg" -d bench -At -c "$1"; }
start() {
    as pg_ctl -s -w -t 120 -D "$D/pg" -l "$T/pg/log" -o "-c listen_addresses='' -c unix_socket_directories=$T/pg" start
    code=$?; [ $code = 0 ] || { echo "pg_ctl: $code"; tail -n 5 "$T/pg/log"; exit 1; }
}
# The data directory is named in postmaster.pid: its first line is the process, which is of no use after a kill.
postmaster() { head -n 1 "$D/pg/postmaster.pid"; }
trap 'as pg_ctl -s -m immediate -D "$D/pg" stop > /dev/null 2>&1' EXIT
as initdb -D "$D/pg" -E UTF8 --locale=C -A trust --data-checksums > "$T/pg/initdb" 2>&1 || { tail -n 5 "$T/pg/initdb"; exit 1; }
start
as createdb -h "$T/pg" bench; as pgbench -q -i -s 3 -h "$T/pg" bench > "$T/pg/load" 2>&1; echo "loaded: $?"
sql 'select count(*) from pgbench_accounts'
as pgbench -n -c 4 -j 2 -t 100 -h "$T/pg" bench > "$T/pg/bench" 2>&1; echo "ran: $?"
grep -o 'transactions actually processed: .*' "$T/pg/bench"; sql 'select count(*) from pgbench_history'
sql 'create table seen(n int)'
# Every commit that is acknowledged to this client is noted outside, until the server is killed under it.
(n=0; while sql "insert into seen values($((n + 1)))" 2> /dev/null; do n=$((n + 1)); echo $n > "$T/pg/acknowledged"; done) &
as pgbench -n -c 4 -j 2 -T 60 -h "$T/pg" bench > "$T/pg/killed" 2>&1 &
while [ "$(cat "$T/pg/acknowledged" 2> /dev/null || echo 0)" -lt 20 ]; do sleep 0.1; done
kill -9 $(ps -o pid= --ppid "$(postmaster)") "$(postmaster)"; wait
sleep 1; start
[ "$(sql 'select count(*) from seen')" -ge "$(cat "$T/pg/acknowledged")" ] && echo "every acknowledged commit is there"
[ "$(sql 'select sum(abalance) from pgbench_accounts')" = "$(sql 'select sum(delta) from pgbench_history')" ] && echo "the sums agree"
as pg_amcheck -h "$T/pg" -d bench --install-missing > "$T/pg/amcheck" 2>&1; echo "amcheck: $?"
sql 'vacuum full'; sql 'select count(*) from pgbench_branches'
as pg_ctl -s -w -m fast -D "$D/pg" stop; echo "stopped: $?"
as pg_checksums -c -D "$D/pg" | grep -i 'bad checksums'
