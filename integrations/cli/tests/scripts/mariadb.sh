# needs: setpriv /usr/sbin/mariadbd mariadb mariadb-install-db
# A server of its own, as a user without rights: InnoDB and Aria loaded, killed in the middle, recovered, checked.
mkdir "$D/db" && chown 65534:65534 "$D/db" && chmod 700 "$D/db"; mkdir "$T/db"; chown 65534:65534 "$T/db"; chmod 711 "$T/db"
be() { cd / && exec env HOME="$T/db" LC_ALL=C setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
as() { (be "$@"); }
sql() { as mariadb --no-defaults -S "$T/db/s" -u root -N -B "$@"; }
start() {
    be /usr/sbin/mariadbd --no-defaults --datadir="$D/db" --socket="$T/db/s" --pid-file="$T/db/pid" --skip-networking \
        --skip-grant-tables --innodb-buffer-pool-size=24M --innodb-log-file-size=16M "$@" > "$T/db/log" 2>&1 &
    server=$!
    for i in $(seq 600); do sql -e 'select 1' > /dev/null 2>&1 && return; sleep 0.1; done
    echo "no server"; tail -n 20 "$T/db/log"; exit 1
}
acknowledged() { n=$(cat "$T/db/acknowledged" 2> /dev/null); echo "${n:-0}"; }
trap 'kill -9 $server 2> /dev/null' EXIT
as mariadb-install-db --no-defaults --datadir="$D/db" --auth-root-authentication-method=normal --skip-test-db \
    > "$T/db/install" 2>&1 || { tail -n 20 "$T/db/install"; exit 1; }
start
sql -e 'create database d'
sql d -e "create table t(id int primary key auto_increment, k int, v varchar(200), key(k)) engine=innodb;
          insert into t(k, v) select seq % 97, repeat(char(65 + seq % 26), 150) from seq_1_to_30000;
          create table a(id int primary key, v text) engine=aria; insert into a select seq, md5(seq) from seq_1_to_3000;
          create table m engine=myisam select seq, md5(seq) as h from seq_1_to_3000;
          create table seen(n int) engine=innodb"
sql d -e 'select count(*), sum(k), sum(crc32(v)) from t; select count(*), sum(crc32(v)) from a; select count(*) from m'
sql d -e 'begin; update t set v = "undone"; rollback; delete from t where k = 5; alter table t add column w int default 7'
# Every commit that is acknowledged to this client is noted outside, until the server is killed under it.
(n=0; while sql d -e "insert into seen values($((n + 1)))" 2> /dev/null; do n=$((n + 1)); echo $n > "$T/db/next"; mv "$T/db/next" "$T/db/acknowledged"; done) &
(while sql d -e 'update t set k = k + 1 where id % 50 = 3; insert into a values(uuid_short() % 2000000000 + 5000, "x")' 2> /dev/null; do :; done) &
while [ "$(acknowledged)" -lt 20 ]; do sleep 0.1; done
kill -9 $server; wait; start --innodb-flush-method=fsync
[ "$(sql d -e 'select count(*) from seen')" -ge "$(acknowledged)" ] && echo "every acknowledged commit is there"
sql d -e 'select count(*), sum(w) from t; check table t extended; check table seen; repair table m; check table m'
sql d -e 'check table a' | sed 's/.*status//;s/.*error.*/error/' | tail -n 1
sql d -e 'optimize table t' | tail -n 1; sql d -e 'select count(*) from t where k > 50' | wc -l
mariadb-dump --no-defaults -S "$T/db/s" -u root d t | grep -c '^INSERT'
sql -e shutdown; wait $server; echo "stopped: $?"
start --innodb-flush-method=O_DIRECT
sql d -e 'select count(*), sum(crc32(v)) from t; drop database d'; sql -e 'show databases' | sort
kill -TERM $server; wait $server; echo "stopped: $?"
