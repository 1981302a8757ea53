cd "$D" || exit 1
sqlite3 db 'create table t(a integer primary key, b text); insert into t values(1,"x"),(2,"y"); select * from t;'
seq 1 20000 | sed 's/.*/&,row number &/' > rows.csv
sqlite3 db <<'END'
.mode csv
.import rows.csv r
create index ri on r('1');
select count(*) from r;
begin; delete from t; rollback; select count(*) from t;
pragma journal_mode;
vacuum;
pragma integrity_check;
END
sqlite3 db 'select count(*), max(rowid) from r'; ls db-journal 2>/dev/null; test -e db-journal || echo no journal left
(sqlite3 db '.timeout 5000' 'begin immediate; insert into t values(10,"p"); commit;' & sqlite3 db '.timeout 5000' 'begin immediate; insert into t values(11,"q"); commit;' & wait); sqlite3 db 'select a from t order by a'
sqlite3 db 'begin exclusive' 'select 1' '.shell sqlite3 db "select 2" 2>&1 | grep -c locked'
sqlite3 db .dump | sha256sum
