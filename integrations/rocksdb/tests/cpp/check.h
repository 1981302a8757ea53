// What the parts of the test program share.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "weldfs_fs.h"

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)
#define OK(call)                                                                     \
  do {                                                                               \
    const rocksdb::Status status_ = (call);                                          \
    if (!status_.ok()) {                                                             \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, status_.ToString().c_str()); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

// A device and the Env over it.
struct Rig {
  explicit Rig(const std::string& target) {
    OK(rocksdb::NewWeldFileSystem(target, &fs));
    env = rocksdb::NewCompositeEnv(fs);
  }
  rocksdb::WeldCounters Counters() const {
    rocksdb::WeldCounters counters;
    CHECK(rocksdb::GetWeldCounters(fs.get(), &counters));
    return counters;
  }
  rocksdb::Options Options() const {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.env = env.get();
    options.write_buffer_size = 256 << 10;
    // The sizes of tests are those of their values.
    options.compression = rocksdb::kNoCompression;
    options.target_file_size_base = 256 << 10;
    options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
    return options;
  }
  std::unique_ptr<rocksdb::DB> Open(const std::string& name, const rocksdb::Options& options) const {
    rocksdb::DB* db = nullptr;
    OK(rocksdb::DB::Open(options, name, &db));
    return std::unique_ptr<rocksdb::DB>(db);
  }
  std::unique_ptr<rocksdb::DB> Open(const std::string& name) const { return Open(name, Options()); }

  std::shared_ptr<rocksdb::FileSystem> fs;
  std::unique_ptr<rocksdb::Env> env;
};

// A row of a test, and what it holds.
inline std::string Key(uint64_t row) {
  char key[32];
  std::snprintf(key, sizeof key, "row%012llu", static_cast<unsigned long long>(row));
  return key;
}
inline std::string Value(uint64_t row, uint64_t version, size_t bytes = 200) {
  std::string value = std::to_string(row) + "." + std::to_string(version) + ".";
  while (value.size() < bytes) {
    value += static_cast<char>('a' + (value.size() * 7 + row + version) % 26);
  }
  return value;
}

int TestFiles(const std::string& target);
int TestHandoffs(const std::string& target);
int TestHints(const std::string& target);
int TestEngine(const std::string& target);
int TestRandom(const std::string& target, const std::string& state, uint64_t seed, uint64_t operations);
