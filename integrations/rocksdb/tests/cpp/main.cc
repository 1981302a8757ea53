// The engine on a device, as the tests in ../it run it: one program, a part by its name.

#include <cstring>
#include <fstream>
#include <iostream>

#include "check.h"
#include "rocksdb/convenience.h"

namespace {

using rocksdb::Status;

// Commits row after row, and says on stdout which are acknowledged, until it is killed or fails.
int Write(const std::string& target, bool sync) {
  Rig rig(target);
  auto db = rig.Open("/db");
  rocksdb::WriteOptions synced;
  synced.sync = sync;
  for (uint64_t row = 1;; ++row) {
    rocksdb::WriteBatch both;
    both.Put(Key(row), Value(row, 1));
    both.Put("last", std::to_string(row));
    const Status status = db->Write(synced, &both);
    if (!status.ok()) {
      std::cerr << status.ToString() << std::endl;
      CHECK(status.IsIOError());
      // The engine takes no more.
      CHECK(!db->Put(synced, "after", "x").ok());
      return 3;
    }
    std::cout << row << std::endl;
  }
}

// What a writer acknowledged is there, and at most one more, whole. Of a `prefix`, only some of it: up to a row.
int Verify(const std::string& target, uint64_t acknowledged, bool prefix) {
  Rig rig(target);
  auto db = rig.Open("/db");
  rocksdb::ReadOptions checked;
  checked.verify_checksums = true;
  std::string value;
  uint64_t last = 0;
  if (db->Get(checked, "last", &value).ok()) {
    last = std::stoull(value);
  }
  CHECK((prefix && last < acknowledged) || last == acknowledged || last == acknowledged + 1);
  for (uint64_t row = 1; row <= last; ++row) {
    OK(db->Get(checked, Key(row), &value));
    CHECK(value == Value(row, 1));
  }
  CHECK(db->Get(checked, Key(last + 1), &value).IsNotFound());
  OK(db->VerifyChecksum());
  return 0;
}

// Writes until there is no room; nothing that was acknowledged is lost, and there is room again when rows are removed.
int Fill(const std::string& target) {
  Rig rig(target);
  uint64_t rows = 0;
  {
    auto db = rig.Open("/db");
    Status status;
    for (;; ++rows) {
      status = db->Put(rocksdb::WriteOptions(), Key(rows), Value(rows, 1, 20000));
      if (!status.ok()) {
        break;
      }
      CHECK(rows < 100000);
    }
    std::cerr << rows << ": " << status.ToString() << std::endl;
    CHECK(status.IsNoSpace() || status.subcode() == Status::kNoSpace);
    std::string value;
    for (uint64_t row = 0; row < rows; ++row) {
      OK(db->Get(rocksdb::ReadOptions(), Key(row), &value));
      CHECK(value == Value(row, 1, 20000));
    }
  }
  OK(rig.fs->DeleteFile("/ballast", rocksdb::IOOptions(), nullptr));
  auto db = rig.Open("/db");
  std::string value;
  for (uint64_t row = 0; row < rows; ++row) {
    OK(db->Get(rocksdb::ReadOptions(), Key(row), &value));
    CHECK(value == Value(row, 1, 20000));
  }
  OK(db->Put(rocksdb::WriteOptions(), "room", "again"));
  return 0;
}

// Something large that Fill removes when there is no room.
int Ballast(const std::string& target, size_t bytes) {
  Rig rig(target);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  OK(rig.fs->NewWritableFile("/ballast", rocksdb::FileOptions(), &file, nullptr));
  OK(file->Append(std::string(bytes, 'b'), rocksdb::IOOptions(), nullptr));
  OK(file->Sync(rocksdb::IOOptions(), nullptr));
  OK(file->Close(rocksdb::IOOptions(), nullptr));
  return 0;
}

// Opens, says how that went, and holds the database until standard input ends.
int Hold(const std::string& target, const std::string& name, bool read_only) {
  std::shared_ptr<rocksdb::FileSystem> fs;
  Status status = rocksdb::NewWeldFileSystem(target, &fs);
  if (!status.ok()) {
    std::cout << "target: " << status.ToString() << std::endl;
    return 2;
  }
  auto env = rocksdb::NewCompositeEnv(fs);
  rocksdb::Options options;
  options.create_if_missing = !read_only;
  options.env = env.get();
  rocksdb::DB* raw = nullptr;
  status = read_only ? rocksdb::DB::OpenForReadOnly(options, name, &raw) : rocksdb::DB::Open(options, name, &raw);
  if (!status.ok()) {
    std::cout << "database: " << status.ToString() << std::endl;
    return 3;
  }
  std::unique_ptr<rocksdb::DB> db(raw);
  uint64_t rows = 0;
  std::unique_ptr<rocksdb::Iterator> all(db->NewIterator(rocksdb::ReadOptions()));
  for (all->SeekToFirst(); all->Valid(); all->Next()) {
    ++rows;
  }
  OK(all->status());
  if (read_only) {
    CHECK(!db->Put(rocksdb::WriteOptions(), "x", "y").ok());
  }
  std::cout << "open: " << rows << " rows" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  return 0;
}

// What WeldOptions say is taken, or refused.
int Options(const std::string& target) {
  std::shared_ptr<rocksdb::FileSystem> fs;
  rocksdb::WeldOptions options;
  options.memory_bytes = 1;
  CHECK(rocksdb::NewWeldFileSystem(target, &fs, options).IsInvalidArgument() && fs == nullptr);
  options.memory_bytes = 64 << 20;
  options.token = "no token";
  CHECK(rocksdb::NewWeldFileSystem(target, &fs, options).IsIOError() && fs == nullptr);
  options.token.clear();
  OK(rocksdb::NewWeldFileSystem(target, &fs, options));
  rocksdb::WeldCounters counters;
  CHECK(rocksdb::GetWeldCounters(fs.get(), &counters));
  CHECK(!rocksdb::GetWeldCounters(rocksdb::FileSystem::Default().get(), &counters));
  // The same by name, as tools do it; a second one in the process shares the device.
  std::shared_ptr<rocksdb::FileSystem> named;
  OK(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), "weldfs://" + target, &named));
  CHECK(named->GetId() == "weldfs://" + target);
  OK(named->CreateDir("/seen", rocksdb::IOOptions(), nullptr));
  OK(fs->FileExists("/seen", rocksdb::IOOptions(), nullptr));
  CHECK(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), "weldfs://", &named).IsInvalidArgument());
  CHECK(weldfs_rocksdb_register() == 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  const std::string target = argc > 2 ? argv[2] : "";
  auto text = [&](int i) { return std::string(argc > i ? argv[i] : ""); };
  auto number = [&](int i) { return std::stoull(text(i)); };
  if (part == "files") return TestFiles(target);
  if (part == "handoffs") return TestHandoffs(target);
  if (part == "engine") return TestEngine(target);
  if (part == "random") return TestRandom(target, text(3), number(4), number(5));
  if (part == "write") return Write(target, text(3) != "unsynced");
  if (part == "verify") return Verify(target, number(3), text(4) == "prefix");
  if (part == "fill") return Fill(target);
  if (part == "options") return Options(target);
  if (part == "ballast") return Ballast(target, number(3));
  if (part == "open") return Hold(target, text(3), false);
  if (part == "read-only") return Hold(target, text(3), true);
  std::fprintf(stderr, "no such part: %s\n", part.c_str());
  return 64;
}
