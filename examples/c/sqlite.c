/* A database of SQLite in a device, or in an image: counts how often it was started.
 *
 *   cc sqlite.c $(pkg-config --cflags --libs weldfs_sqlite sqlite3) -o starts && ./starts disk.img:/app.db
 */
#include <stdio.h>
#include <stdlib.h>
#include <weldfs_sqlite.h>

static void check(int code, sqlite3 *db, const char *what) {
    if (code != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
        exit(1);
    }
}

static int said(void *unused, int columns, char **values, char **names) {
    (void)unused, (void)columns, (void)names;
    printf("started %s times\n", values[0]);
    return 0;
}

int main(int argc, char **argv) {
    sqlite3 *db = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: %s TARGET:/PATH\n", argv[0]);
        return 2;
    }
    check(weldfs_sqlite_register_here(0), NULL, "the VFS");
    check(sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "weldfs"), db, argv[1]);
    check(sqlite3_exec(db, "create table if not exists starts(at); insert into starts values(datetime('now'))", NULL,
                       NULL, NULL),
          db, "insert");
    check(sqlite3_exec(db, "select count(*) from starts", said, NULL, NULL), db, "select");
    check(sqlite3_close(db), db, "close");
    return 0;
}
