# needs: /usr/bin/python3
# The module sqlite3: two processes, transactions, backup, a full-text table.
cd "$D" && /usr/bin/python3 - <<'END'
import multiprocessing as mp, os, sqlite3
def add(n):
    db = sqlite3.connect("db", timeout=60, isolation_level="IMMEDIATE")
    for i in range(25):
        with db: db.execute("insert into t values(?,?)", (n, i))
db = sqlite3.connect("db")
db.execute("create table t(a, b)"); db.commit()
with mp.get_context("fork").Pool(2) as pool: pool.map(add, range(4))
print(db.execute("select count(*), count(distinct a), sum(b) from t").fetchone())
try:
    with db:
        db.execute("delete from t"); raise KeyError
except KeyError: pass
print(db.execute("select count(*) from t").fetchone())
other = sqlite3.connect("copy"); db.backup(other); print(other.execute("pragma integrity_check").fetchone())
db.execute("attach 'copy' as c"); print(db.execute("select count(*) from c.t").fetchone())
db.execute("create virtual table words using fts5(text)")
with db: db.executemany("insert into words values(?)", [("word number %d" % n,) for n in range(500)])
print(db.execute("select count(*) from words where words match 'word AND 7'").fetchone())
db.execute("vacuum"); db.close(); print(sorted(n for n in os.listdir(".")))
END
