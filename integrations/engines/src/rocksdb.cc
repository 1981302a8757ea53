// RocksDB, with its defaults but for the block cache: on the host, or on a device through WeldFS's FileSystem.
#include <memory>

#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/table.h"
#include "rocksdb/version.h"
#include "store.h"
#include "weldfs_fs.h"

namespace drive {

namespace {

using rocksdb::DB;
using rocksdb::Slice;
using rocksdb::Status;

std::string Said(const Status& s) { return s.ok() ? std::string() : s.ToString(); }

class Rocks : public Store {
 public:
  Status Open(const Arguments& a) {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(a.cache);
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    if (a.handoff) {
      // All that RocksDB sums up.
      using rocksdb::FileType;
      for (const FileType type : {FileType::kWalFile, FileType::kTableFile, FileType::kDescriptorFile,
                                  FileType::kBlobFile}) {
        options.checksum_handoff_file_types.Add(type);
      }
    }
    if (a.target != "host") {
      std::shared_ptr<rocksdb::FileSystem> fs;
      const Status s = rocksdb::NewWeldFileSystem(a.target, &fs);
      if (!s.ok()) return s;
      env_ = rocksdb::NewCompositeEnv(fs);
      options.env = env_.get();
    }
    DB* db = nullptr;
    const Status s = DB::Open(options, a.db, &db);
    db_.reset(db);
    return s;
  }

  std::string Put(const std::string& key, const std::string& value, bool sync) override {
    rocksdb::WriteOptions options;
    options.sync = sync;
    return Said(db_->Put(options, key, value));
  }

  std::string Get(const std::string& key, std::string* value, bool* found) override {
    const Status s = db_->Get(rocksdb::ReadOptions(), key, value);
    *found = s.ok();
    return s.IsNotFound() ? std::string() : Said(s);
  }

  std::string Scan(const std::string& from, const Seen& seen) override {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
    for (it->Seek(from); it->Valid(); it->Next()) {
      const Slice key = it->key(), value = it->value();
      if (!seen(key.data(), key.size(), value.data(), value.size())) break;
    }
    return Said(it->status());
  }

 private:
  // After the database: the last one out.
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<DB> db_;
};

}  // namespace

std::string Open(const Arguments& arguments, std::unique_ptr<Store>* store) {
  auto rocks = std::make_unique<Rocks>();
  const Status s = rocks->Open(arguments);
  *store = std::move(rocks);
  return Said(s);
}

std::string Engine() {
  return "RocksDB " + std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR) + "." +
         std::to_string(ROCKSDB_PATCH);
}

}  // namespace drive
