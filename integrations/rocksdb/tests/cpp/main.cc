// The engine on a device, as the tests in ../it run it: one program, a part by its name.

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>
#include <vector>

#include "check.h"
#include "rocksdb/convenience.h"

namespace {

using rocksdb::Status;

const rocksdb::IOOptions kIo;

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

// What a writer acknowledged is there, and at most one more, whole.
int Verify(const std::string& target, uint64_t acknowledged) {
  Rig rig(target);
  auto db = rig.Open("/db");
  rocksdb::ReadOptions checked;
  checked.verify_checksums = true;
  std::string value;
  uint64_t last = 0;
  if (db->Get(checked, "last", &value).ok()) {
    last = std::stoull(value);
  }
  CHECK(last == acknowledged || last == acknowledged + 1);
  for (uint64_t row = 1; row <= last; ++row) {
    OK(db->Get(checked, Key(row), &value));
    CHECK(value == Value(row, 1));
  }
  CHECK(db->Get(checked, Key(last + 1), &value).IsNotFound());
  OK(db->VerifyChecksum());
  return 0;
}

bool IsNoSpace(const Status& status) { return status.IsNoSpace() || status.subcode() == Status::kNoSpace; }

std::vector<std::string> List(const Rig& rig, const std::string& directory) {
  std::vector<std::string> names;
  OK(rig.fs->GetChildren(directory, kIo, &names, nullptr));
  return names;
}

void CheckRows(rocksdb::DB* db, uint64_t rows) {
  std::string value;
  for (uint64_t row = 0; row < rows; ++row) {
    OK(db->Get(rocksdb::ReadOptions(), Key(row), &value));
    CHECK(value == Value(row, 1, 20000));
  }
}

// Puts rows until there is no room: how many were acknowledged.
uint64_t PutRows(rocksdb::DB* db) {
  for (uint64_t rows = 0;; ++rows) {
    const Status status = db->Put(rocksdb::WriteOptions(), Key(rows), Value(rows, 1, 20000));
    if (!status.ok()) {
      std::cerr << rows << ": " << status.ToString() << std::endl;
      CHECK(IsNoSpace(status));
      return rows;
    }
    CHECK(rows < 100000);
  }
}

// Takes what room is left.
void FillUp(const Rig& rig, const std::string& name) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  OK(rig.fs->NewWritableFile(name, rocksdb::FileOptions(), &file, nullptr));
  for (size_t bytes = 1 << 20; bytes > 0;) {
    const Status status = file->Append(std::string(bytes, 'f'), kIo, nullptr);
    CHECK(status.ok() || IsNoSpace(status));
    bytes = status.ok() ? bytes : bytes / 2;
  }
}

// A temporary file that cannot be written is kept: listed, asked for and removed, and in the way of no other file.
void KeepWithoutRoom(const Rig& rig) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  OK(rig.fs->NewWritableFile("/kept/1.dbtmp", rocksdb::FileOptions(), &file, nullptr));
  OK(file->Append(std::string(200 << 10, 'k'), kIo, nullptr));
  OK(file->Sync(kIo, nullptr));
  OK(file->Close(kIo, nullptr));
  std::unique_ptr<rocksdb::FSSequentialFile> read;
  CHECK(IsNoSpace(rig.fs->NewSequentialFile("/kept/1.dbtmp", rocksdb::FileOptions(), &read, nullptr)));
  OK(rig.fs->FileExists("/kept/1.dbtmp", kIo, nullptr));
  CHECK(List(rig, "/kept") == std::vector<std::string>{"1.dbtmp"});
  CHECK(!List(rig, "/db").empty());
  CHECK(IsNoSpace(rig.fs->DeleteDir("/kept", kIo, nullptr)));
}

// Writes until there is no room; nothing that was acknowledged is lost, and the engine goes on when there is room.
int Fill(const std::string& target) {
  Rig rig(target);
  OK(rig.fs->CreateDir("/kept", kIo, nullptr));
  auto db = rig.Open("/db");
  const uint64_t rows = PutRows(db.get());
  CheckRows(db.get(), rows);
  FillUp(rig, "/filler");
  KeepWithoutRoom(rig);
  // The engine reads its new options back, which fails: releases differ in whether it removes them then.
  db->SetOptions({{"disable_auto_compactions", "true"}}).PermitUncheckedError();
  CHECK(!List(rig, "/db").empty());
  OK(rig.fs->DeleteFile("/ballast", kIo, nullptr));
  // It looks for room every five seconds.
  Status status;
  for (int tenths = 0; tenths < 600; ++tenths) {
    status = db->Put(rocksdb::WriteOptions(), "room", "again");
    if (status.ok()) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  OK(status);
  CheckRows(db.get(), rows);
  // What was kept meanwhile is written now.
  CHECK(rig.fs->DeleteDir("/kept", kIo, nullptr).IsIOError());
  uint64_t size = 0;
  OK(rig.fs->GetFileSize("/kept/1.dbtmp", kIo, &size, nullptr));
  CHECK(size == 200 << 10);
  db.reset();
  db = rig.Open("/db");
  CheckRows(db.get(), rows);
  db.reset();
  FillUp(rig, "/filler2");
  OK(rig.fs->DeleteFile("/kept/1.dbtmp", kIo, nullptr));
  FillUp(rig, "/filler3");
  KeepWithoutRoom(rig);
  // Makes room, though a file of another directory cannot be written.
  OK(rocksdb::DestroyDB("/db", rig.Options()));
  CHECK(rig.fs->FileExists("/db", kIo, nullptr).IsNotFound());
  OK(rig.fs->DeleteFile("/kept/1.dbtmp", kIo, nullptr));
  OK(rig.fs->DeleteDir("/kept", kIo, nullptr));
  return 0;
}

// Syncs a temporary file and reads it, closed or open: it is then there whatever becomes of the process.
int Look(const std::string& target, bool closed) {
  Rig rig(target);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  OK(rig.fs->NewWritableFile("/1.dbtmp", rocksdb::FileOptions(), &file, nullptr));
  OK(file->Append("synced", kIo, nullptr));
  OK(file->Sync(kIo, nullptr));
  if (closed) {
    OK(file->Close(kIo, nullptr));
  }
  std::unique_ptr<rocksdb::FSSequentialFile> read;
  OK(rig.fs->NewSequentialFile("/1.dbtmp", rocksdb::FileOptions(), &read, nullptr));
  // Neither the device in this process nor the file system ends as it should.
  raise(SIGKILL);
  return 1;
}

int Looked(const std::string& target) {
  Rig rig(target);
  uint64_t size = 0;
  OK(rig.fs->GetFileSize("/1.dbtmp", kIo, &size, nullptr));
  CHECK(size == 6);
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
  } else {
    // Both in a table and in the log, for who reads only.
    OK(db->Put(rocksdb::WriteOptions(), "in a table", "value"));
    OK(db->Flush(rocksdb::FlushOptions()));
    rocksdb::WriteOptions synced;
    synced.sync = true;
    OK(db->Put(synced, "in the log", "value"));
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
  if (part == "hints") return TestHints(target);
  if (part == "engine") return TestEngine(target);
  if (part == "random") return TestRandom(target, text(3), number(4), number(5));
  if (part == "write") return Write(target, text(3) != "unsynced");
  if (part == "verify") return Verify(target, number(3));
  if (part == "fill") return Fill(target);
  if (part == "look") return Look(target, text(3) == "closed");
  if (part == "looked") return Looked(target);
  if (part == "options") return Options(target);
  if (part == "ballast") return Ballast(target, number(3));
  if (part == "open") return Hold(target, text(3), false);
  if (part == "read-only") return Hold(target, text(3), true);
  std::fprintf(stderr, "no such part: %s\n", part.c_str());
  return 64;
}
