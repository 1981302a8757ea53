# A million rows (over 100 MB) imported with a rollback journal; a second process reads them; the database is sound.
set -eu
cd "$1"
python3 -c "
import random
r = random.Random(1)
for i in range(1000000):
    print(f'{i},{r.getrandbits(64):016x}{r.getrandbits(256):064x},name {i % 1000},{r.random()}')" > rows.csv
sqlite3 big.db > /dev/null <<'X'
pragma journal_mode=delete;
create table r(id integer, h text, n text, x real);
.mode csv
.import rows.csv r
X
size=$(stat -c %s big.db)
[ "$size" -ge 100000000 ] || { echo "the database has only $size bytes"; exit 1; }
seen=$(sh -c "sqlite3 big.db 'select count(*), sum(id), count(distinct n) from r; pragma integrity_check;'")
[ "$seen" = "1000000|499999500000|1000
ok" ] || { echo "a second process sees: $seen"; exit 1; }
echo "sqlite: 1,000,000 rows, $size bytes, integrity ok"
