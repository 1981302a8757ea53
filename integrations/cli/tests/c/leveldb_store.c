/* Stock LevelDB: writes enough for several tables, closes, opens again (tables are mapped, shared and read-only), and
 * reads everything. */
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 20000

static void check(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static leveldb_t *open_store(const char *name) {
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_write_buffer_size(options, 256 << 10);
    leveldb_t *db = leveldb_open(options, name, &error);
    check(error);
    return db;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    char *error = NULL, key[32], value[128];
    leveldb_t *db = open_store(argv[1]);
    leveldb_writeoptions_t *how = leveldb_writeoptions_create();
    for (int i = 0; i < KEYS; i++) {
        sprintf(key, "key %08d", i);
        memset(value, 'a' + i % 26, sizeof value);
        leveldb_put(db, how, key, strlen(key), value, sizeof value, &error);
        check(error);
    }
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_close(db);
    db = open_store(argv[1]);
    leveldb_readoptions_t *reading = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(reading, 1);
    for (int i = 0; i < KEYS; i++) {
        size_t len;
        sprintf(key, "key %08d", i);
        char *got = leveldb_get(db, reading, key, strlen(key), &len, &error);
        check(error);
        memset(value, 'a' + i % 26, sizeof value);
        if (!got || len != sizeof value || memcmp(got, value, len)) {
            fprintf(stderr, "%s is wrong\n", key);
            return 1;
        }
        leveldb_free(got);
    }
    leveldb_close(db);
    puts("all keys are right");
    return 0;
}
