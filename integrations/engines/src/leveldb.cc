// LevelDB, with its defaults but for the block cache: on the host, or on a device through WeldFS's Env.
#include <memory>

#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "store.h"
#include "weldfs_leveldb.h"

namespace drive {

namespace {

using leveldb::DB;
using leveldb::Slice;
using leveldb::Status;

std::string Said(const Status& s) { return s.ok() ? std::string() : s.ToString(); }

class Level : public Store {
 public:
  Status Open(const Arguments& a) {
    leveldb::Options options;
    options.create_if_missing = true;
    cache_.reset(leveldb::NewLRUCache(a.cache));
    options.block_cache = cache_.get();
    if (a.target != "host") {
      leveldb::Env* env = nullptr;
      const Status s = weldfs::NewLevelDBEnv(a.target, &env);
      if (!s.ok()) return s;
      env_.reset(env);
      options.env = env;
    }
    DB* db = nullptr;
    const Status s = DB::Open(options, a.db, &db);
    db_.reset(db);
    return s;
  }

  std::string Put(const std::string& key, const std::string& value, bool sync) override {
    leveldb::WriteOptions options;
    options.sync = sync;
    return Said(db_->Put(options, key, value));
  }

  std::string Get(const std::string& key, std::string* value, bool* found) override {
    leveldb::ReadOptions options;
    // RocksDB does so by default: a wrong byte is an error of the engine's, in both.
    options.verify_checksums = true;
    const Status s = db_->Get(options, key, value);
    *found = s.ok();
    return s.IsNotFound() ? std::string() : Said(s);
  }

  std::string Scan(const std::string& from, const Seen& seen) override {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    const std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(options));
    for (it->Seek(from); it->Valid(); it->Next()) {
      const Slice key = it->key(), value = it->value();
      if (!seen(key.data(), key.size(), value.data(), value.size())) break;
    }
    return Said(it->status());
  }

 private:
  // After the database: the last ones out.
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<leveldb::Env> env_;
  std::unique_ptr<DB> db_;
};

}  // namespace

std::string Open(const Arguments& arguments, std::unique_ptr<Store>* store) {
  auto level = std::make_unique<Level>();
  const Status s = level->Open(arguments);
  *store = std::move(level);
  return Said(s);
}

std::string Engine() {
  return "LevelDB " + std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion);
}

}  // namespace drive
