/*
 * SQLite on a WeldFS device: the VFS `weldfs` in a program. docs/engines/SQLITE.md is the introduction.
 *
 *   weldfs_sqlite_register_here(0);                 // once, before the first database is opened
 *   sqlite3_open_v2("disk.img:/app.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "weldfs");
 *
 * The library is linked with no SQLite: it uses four functions of the one that it is given. In a program that has a
 * SQLite of its own (linked statically, or renamed) these are that one's, for the compiler takes them here.
 * Any thread may call what is below, at any time; databases that are open go on.
 */
#ifndef WELDFS_SQLITE_H
#define WELDFS_SQLITE_H

#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Registers the VFS with the SQLite whose functions these are; with `make_default` not 0 as its default. SQLITE_OK, or
 * what sqlite3_vfs_register() says; SQLITE_MISUSE if one of them is NULL. One SQLite in a process has the VFS: to
 * another one it is refused, SQLITE_MISUSE, here and below.
 */
int weldfs_sqlite_register_with(sqlite3_vfs *(*find)(const char *), int (*vfs_register)(sqlite3_vfs *, int),
                                void *(*malloc64)(sqlite3_uint64), void (*log)(int, const char *, ...),
                                int make_default);

/*
 * The same with the SQLite that is found by the names of its functions among the program's shared libraries;
 * SQLITE_NOTFOUND if there is none (it is linked into the program, say).
 */
int weldfs_sqlite_register(int make_default);

/* The same with the SQLite that this is compiled with, wherever it is. */
static inline int weldfs_sqlite_register_here(int make_default) {
    return weldfs_sqlite_register_with(sqlite3_vfs_find, sqlite3_vfs_register, sqlite3_malloc64, sqlite3_log,
                                       make_default);
}

#ifdef __cplusplus
}
#endif

#endif
