/*
 * LevelDB on a WeldFS device: an Env whose files lie in the device. docs/engines/LEVELDB.md is the introduction.
 *
 *   leveldb::Env* env;
 *   leveldb::Status s = weldfs::NewLevelDBEnv("disk.img", &env);   // an image, or the socket of a device
 *   options.env = env;                                             // then leveldb::DB::Open(options, "/db", &db)
 *
 * The Env is deleted after the last database in it; that detaches, and ends a device that ran in this process.
 */
#ifndef WELDFS_LEVELDB_H
#define WELDFS_LEVELDB_H

#define WELDFS_LEVELDB_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
#include <string>

#include "leveldb/env.h"
#include "leveldb/status.h"

namespace weldfs {

/*
 * Makes an Env of a target: an image file, or the socket of a device. Its names are paths from the device's root. An
 * image that a device serves is reached through that device; one that none serves is opened in this process, and locked
 * against other processes.
 *
 * With an empty target the names themselves have it, TARGET:/path, so that one Env has databases on any number of
 * devices. Names without one are then in the target of the variable WELDFS_LEVELDB_TARGET.
 *
 * Fails (IOError, NotFound) when the target cannot be attached to; *env is NULL then. What does not concern files
 * (threads, time, sleeping) is LevelDB's Env::Default(). Any number of threads and databases may use an Env.
 */
WELDFS_LEVELDB_EXPORT leveldb::Status NewLevelDBEnv(const std::string& target, leveldb::Env** env);

}  // namespace weldfs

extern "C" {
#endif

typedef struct leveldb_env_t leveldb_env_t;

/*
 * The same for LevelDB's C interface: to be given to leveldb_options_set_env, and back to leveldb_env_destroy. NULL,
 * and a message in *errptr for leveldb_free, when the target cannot be attached to, or when the LevelDB that this runs
 * with lays its leveldb_env_t out in another way than release 1.23 does.
 */
WELDFS_LEVELDB_EXPORT leveldb_env_t* weldfs_leveldb_create_env(const char* target, char** errptr);

#ifdef __cplusplus
}
#endif

#endif
