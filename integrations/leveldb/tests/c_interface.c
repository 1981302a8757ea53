/* LevelDB's C interface with the Env: TARGET is the first argument. */
#include <stdio.h>
#include <string.h>

#include "leveldb/c.h"
#include "weldfs_leveldb.h"

static int failed(const char* what, const char* why) { return fprintf(stderr, "%s: %s\n", what, why ? why : ""), 1; }

int main(int argc, char** argv) {
  char* error = NULL;
  if (argc != 2) return 2;
  if (weldfs_leveldb_create_env("/no/such/image", &error) != NULL || error == NULL) return failed("no target", error);
  leveldb_free(error);
  error = NULL;
  leveldb_env_t* env = weldfs_leveldb_create_env(argv[1], &error);
  if (env == NULL) return failed("create_env", error);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_env(options, env);
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_t* db = leveldb_open(options, "/from-c", &error);
  if (error != NULL) return failed("open", error);
  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  leveldb_writeoptions_set_sync(write, 1);
  leveldb_put(db, write, "key", 3, "value", 5, &error);
  if (error != NULL) return failed("put", error);
  leveldb_close(db);
  db = leveldb_open(options, "/from-c", &error);
  if (error != NULL) return failed("open again", error);
  leveldb_readoptions_t* read = leveldb_readoptions_create();
  size_t len = 0;
  char* value = leveldb_get(db, read, "key", 3, &len, &error);
  if (value == NULL || len != 5 || memcmp(value, "value", 5) != 0) return failed("get", error);
  leveldb_free(value);
  leveldb_close(db);
  leveldb_destroy_db(options, "/from-c", &error);
  if (error != NULL) return failed("destroy", error);
  char* directory = leveldb_env_get_test_directory(env);
  if (directory == NULL) return failed("test directory", NULL);
  leveldb_free(directory);
  leveldb_readoptions_destroy(read);
  leveldb_writeoptions_destroy(write);
  leveldb_options_destroy(options);
  leveldb_env_destroy(env);
  puts("ok");
  return 0;
}
