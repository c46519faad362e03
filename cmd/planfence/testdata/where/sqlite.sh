sqlite3 app.db 'create table t (x); insert into t values (1)'
## act
sqlite3 app.db 'begin; insert into t values (2); commit'
sqlite3 app.db 'pragma journal_mode=wal; insert into t values (3)'
sqlite3 app.db 'pragma journal_mode=persist; insert into t values (4)'
test "$(sqlite3 app.db 'select sum(x) from t')" = 10
