// A program on a database, driven by tests from outside (it is killed, its device is, its image is full), and by
// compare.py for figures.
//
//   drive write TARGET DB FROM COUNT sync|nosync    puts numbered values; prints each number when it was acknowledged
//   drive put TARGET DB FROM COUNT sync|nosync SIZE the same with values of one size, and prints nothing
//   drive verify TARGET DB                          prints how many are there, without a hole; 1 if one is wrong
//   drive audit TARGET DB                           the same with paranoid checks, of a database that must be there
//   drive hold TARGET DB                            opens, says so, waits for the end of its input
//   drive open TARGET DB                            opens or says why not
//   drive exists TARGET DB PATH                     as hold, then prints whether the Env says that PATH exists: 1 or 0
//   drive append TARGET PATH SIZE flush|close       appends twice so many x to a file of its own, says so, waits
//   drive bench TARGET|host DIR WORKLOAD COUNT      prints microseconds an operation
//
// Exit codes: 0; 1 something is wrong; 3 the database could not be opened; 4 a write was refused.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "leveldb/db.h"
#include "leveldb/env.h"
#include "weldfs_leveldb.h"

namespace {

using leveldb::DB;
using leveldb::Status;

std::string Key(long i) {
  char key[32];
  std::snprintf(key, sizeof(key), "%016ld", i);
  return key;
}

// Small ones, and now and then one that fills blocks of the log.
std::string Value(long i) {
  const size_t size = i % 23 == 11 ? 100000 + i % 7 : 20 + i % 400;
  return std::to_string(i) + std::string(size, static_cast<char>('a' + i % 26));
}

// Says a word, and waits for the end of the input.
bool Wait(const std::string& word) {
  const std::string line = word + "\n";
  if (write(1, line.data(), line.size()) < 0) return false;
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return true;
}

struct Database {
  std::unique_ptr<leveldb::Env> env;
  std::unique_ptr<DB> db;
};

Status Open(const std::string& target, const std::string& name, bool audit, Database* out) {
  leveldb::Options options;
  options.create_if_missing = !audit;
  options.paranoid_checks = audit;
  if (target != "host") {
    leveldb::Env* env = nullptr;
    Status s = weldfs::NewLevelDBEnv(target, &env);
    if (!s.ok()) return s;
    out->env.reset(env);
    options.env = env;
  }
  DB* db = nullptr;
  Status s = DB::Open(options, name, &db);
  out->db.reset(db);
  return s;
}

int Refused(const Status& s, int code) {
  std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return code;
}

int Write(DB* db, long from, long count, bool sync, size_t size) {
  leveldb::WriteOptions options;
  options.sync = sync;
  for (long i = from; i < from + count; i++) {
    const Status s = db->Put(options, Key(i), size > 0 ? std::string(size, 'v') : Value(i));
    if (!s.ok()) return Refused(s, 4);
    if (size > 0) continue;
    const std::string line = std::to_string(i) + "\n";
    if (write(1, line.data(), line.size()) < 0) return 1;
  }
  return 0;
}

int Append(const std::string& target, const std::string& path, size_t size, bool close) {
  leveldb::Env* env = nullptr;
  leveldb::WritableFile* file = nullptr;
  Status s = weldfs::NewLevelDBEnv(target, &env);
  if (s.ok()) s = env->NewWritableFile(path, &file);
  if (!s.ok()) return Refused(s, 3);
  const std::string bytes(size, 'x');
  for (int i = 0; i < 2 && s.ok(); i++) s = file->Append(bytes);
  if (s.ok()) s = close ? file->Close() : file->Flush();
  if (!s.ok()) return Refused(s, 4);
  return Wait("written") ? 0 : 1;
}

int Verify(DB* db) {
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  std::unique_ptr<leveldb::Iterator> it(db->NewIterator(options));
  long i = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next(), i++) {
    if (it->key().ToString() != Key(i) || it->value().ToString() != Value(i)) {
      // An iterator goes on behind a block that is damaged.
      if (!it->status().ok()) return Refused(it->status(), 1);
      std::fprintf(stderr, "%ld is missing or wrong: %s\n", i, it->key().ToString().c_str());
      return 1;
    }
  }
  if (!it->status().ok()) return Refused(it->status(), 1);
  std::printf("%ld\n", i);
  return 0;
}

// Values of 100 bytes, half of which compression takes away; keys of 16.
int Bench(DB* db, const std::string& workload, long count) {
  std::mt19937 random(7);
  std::string pool(1 << 20, 0);
  for (size_t i = 0; i < pool.size(); i++) pool[i] = i % 100 < 50 ? static_cast<char>(random()) : 'x';
  leveldb::WriteOptions write;
  write.sync = workload == "fillsync";
  const bool reads = workload == "readrandom";
  std::string value;
  long found = 0;
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < count; i++) {
    const std::string key = Key(workload == "fillseq" ? i : random() % count);
    if (reads) {
      const Status s = db->Get(leveldb::ReadOptions(), key, &value);
      found += s.ok();
      if (!s.ok() && !s.IsNotFound()) return Refused(s, 1);
    } else {
      const Status s = db->Put(write, key, leveldb::Slice(pool.data() + random() % (pool.size() - 100), 100));
      if (!s.ok()) return Refused(s, 4);
    }
  }
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  if (reads && found < count / 2) return Refused(Status::Corruption("too few are found"), 1);
  std::printf("%.3f\n", spent.count() / static_cast<double>(count));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string verb = argv[1];
  if (verb == "append" && argc == 6) {
    return Append(argv[2], argv[3], std::atol(argv[4]), std::strcmp(argv[5], "close") == 0);
  }
  Database database;
  const Status s = Open(argv[2], argv[3], verb == "audit", &database);
  if (!s.ok()) return Refused(s, 3);
  DB* db = database.db.get();
  if ((verb == "write" && argc == 7) || (verb == "put" && argc == 8)) {
    const size_t size = argc == 8 ? std::atol(argv[7]) : 0;
    return Write(db, std::atol(argv[4]), std::atol(argv[5]), std::strcmp(argv[6], "sync") == 0, size);
  }
  if (verb == "verify" || verb == "audit") return Verify(db);
  if (verb == "hold") return Wait("open") ? 0 : 1;
  if (verb == "exists" && argc == 5) {
    if (!Wait("open")) return 1;
    std::printf("%d\n", database.env->FileExists(argv[4]) ? 1 : 0);
    return 0;
  }
  if (verb == "open") return 0;
  if (verb == "bench" && argc == 6) return Bench(db, argv[4], std::atol(argv[5]));
  return 2;
}
