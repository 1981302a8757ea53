// The Env for LevelDB's C interface.
//
// That has no function for an Env from outside: leveldb_env_t is a pointer to the Env, and whether it is the default
// one (which is not deleted). leveldb_options_set_env takes the pointer, leveldb_env_destroy deletes it. The structure
// is not declared in a header, so its layout is looked at before it is relied on: in the one that LevelDB makes.

#include <cstring>
#include <new>
#include <string>

#include "leveldb/c.h"
#include "leveldb/env.h"
#include "weldfs_leveldb.h"

namespace {

struct CEnv {
  leveldb::Env* rep;
  bool is_default;
};

bool LaidOutSo() {
  leveldb_env_t* theirs = leveldb_create_default_env();
  CEnv seen;
  std::memcpy(&seen, static_cast<void*>(theirs), sizeof(seen.rep) + sizeof(seen.is_default));
  leveldb_env_destroy(theirs);
  return seen.rep == leveldb::Env::Default() && seen.is_default;
}

}  // namespace

extern "C" leveldb_env_t* weldfs_leveldb_create_env(const char* target, char** errptr) {
  leveldb::Env* env = nullptr;
  leveldb::Status s = leveldb::Status::NotSupported("weldfs", "this LevelDB has another leveldb_env_t");
  if (LaidOutSo()) s = weldfs::NewLevelDBEnv(target == nullptr ? "" : target, &env);
  if (!s.ok()) {
    if (errptr != nullptr) *errptr = strdup(s.ToString().c_str());
    return nullptr;
  }
  return reinterpret_cast<leveldb_env_t*>(new CEnv{env, false});
}
