// The file system by itself: every call of it, and checksums that are handed over.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "check.h"
#include "rocksdb/file_system.h"

namespace {

using namespace rocksdb;

const IOOptions kIo;

std::unique_ptr<FSWritableFile> Create(FileSystem& fs, const std::string& name) {
  std::unique_ptr<FSWritableFile> file;
  OK(fs.NewWritableFile(name, FileOptions(), &file, nullptr));
  return file;
}

void Put(FileSystem& fs, const std::string& name, const std::string& content) {
  auto file = Create(fs, name);
  OK(file->Append(content, kIo, nullptr));
  OK(file->Close(kIo, nullptr));
}

std::string Get(FileSystem& fs, const std::string& name) {
  std::unique_ptr<FSSequentialFile> file;
  OK(fs.NewSequentialFile(name, FileOptions(), &file, nullptr));
  std::string all, room(3000, '\0');
  Slice part;
  do {
    OK(file->Read(room.size(), kIo, &part, room.data(), nullptr));
    all.append(part.data(), part.size());
  } while (part.size() == room.size());
  return all;
}

// Independent of the one in the plug-in: bit by bit.
std::string Checksum(const std::string& of) {
  uint32_t crc = ~0u;
  for (const char byte : of) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
  }
  crc = ~crc;
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    bytes += static_cast<char>(crc >> 8 * i & 0xff);
  }
  return bytes;
}

void WritableFiles(Rig& rig) {
  FileSystem& fs = *rig.fs;
  auto file = Create(fs, "/d/w");
  OK(file->Append("hello", kIo, nullptr));
  OK(file->Append(" world", kIo, nullptr));
  CHECK(file->GetFileSize(kIo, nullptr) == 11);
  OK(file->Allocate(0, 1 << 20, kIo, nullptr));
  OK(file->RangeSync(0, 11, kIo, nullptr));
  OK(file->Flush(kIo, nullptr));
  auto before = rig.Counters();
  OK(file->Sync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 1);
  // Nothing has changed since.
  OK(file->Fsync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 1);
  OK(file->Truncate(5, kIo, nullptr));
  OK(file->PositionedAppend("HE", 0, kIo, nullptr));
  OK(file->Truncate(5, kIo, nullptr));
  OK(file->Close(kIo, nullptr));
  CHECK(!file->Append("x", kIo, nullptr).ok());
  CHECK(Get(fs, "/d/w") == "HEllo");
  uint64_t size = 0;
  OK(fs.GetFileSize("/d/w", kIo, &size, nullptr));
  CHECK(size == 5);
  // What was allocated and not written is given back.
  std::unique_ptr<FSWritableFile> again;
  OK(fs.ReopenWritableFile("/d/w", FileOptions(), &again, nullptr));
  CHECK(again->GetFileSize(kIo, nullptr) == 5);
  // It is not known what others left volatile: a real sync, though nothing was written through this.
  before = rig.Counters();
  OK(again->Sync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 1);
  const std::string large(5 << 20, 'l');
  OK(again->Append(large, kIo, nullptr));
  OK(again->Close(kIo, nullptr));
  CHECK(Get(fs, "/d/w") == "HEllo" + large);
  // A log that is written anew from its beginning keeps what is behind.
  std::unique_ptr<FSWritableFile> reused;
  Put(fs, "/d/old", "0123456789");
  OK(fs.ReuseWritableFile("/d/new", "/d/old", FileOptions(), &reused, nullptr));
  OK(reused->Append("abc", kIo, nullptr));
  OK(reused->Close(kIo, nullptr));
  CHECK(Get(fs, "/d/new") == "abc3456789");
  CHECK(fs.FileExists("/d/old", kIo, nullptr).IsNotFound());
}

// A guess that a sync follows is made after one that did, given up after one that did not, and never promises less.
void Guesses(Rig& rig) {
  auto file = Create(*rig.fs, "/d/guess");
  const bool always = rig.Counters().durable_appends > 0;
  auto durable = [&] {
    const auto before = rig.Counters().durable_appends;
    OK(file->Append("x", kIo, nullptr));
    return rig.Counters().durable_appends > before;
  };
  if (always) {
    // In the process, on memory: every append survives it, and that costs no flush.
    CHECK(durable() && durable());
    return;
  }
  CHECK(!durable());
  OK(file->Sync(kIo, nullptr));
  CHECK(durable());
  const auto before = rig.Counters();
  OK(file->Sync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs && rig.Counters().syncs_done_before == before.syncs_done_before + 1);
  CHECK(durable());
  // No sync: the next is a plain append, and its sync a command.
  CHECK(!durable());
  CHECK(rig.Counters().unwanted_durable_appends == before.unwanted_durable_appends + 1);
  OK(file->Sync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 1);
  CHECK(!durable());
  OK(file->Sync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 2);
}

void Names(Rig& rig) {
  FileSystem& fs = *rig.fs;
  OK(fs.CreateDirIfMissing("/d/sub", kIo, nullptr));
  OK(fs.CreateDirIfMissing("/d/sub", kIo, nullptr));
  CHECK(!fs.CreateDir("/d/sub", kIo, nullptr).ok());
  Put(fs, "/d/sub/a", "aa");
  Put(fs, "/d/sub/b", "bbb");
  CHECK(!fs.CreateDirIfMissing("/d/sub/a", kIo, nullptr).ok());
  OK(fs.LinkFile("/d/sub/a", "/d/sub/c", kIo, nullptr));
  uint64_t links = 0;
  OK(fs.NumFileLinks("/d/sub/a", kIo, &links, nullptr));
  CHECK(links == 2);
  bool yes = false;
  OK(fs.AreFilesSame("/d/sub/a", "/d/sub/c", kIo, &yes, nullptr));
  CHECK(yes);
  OK(fs.AreFilesSame("/d/sub/a", "/d/sub/b", kIo, &yes, nullptr));
  CHECK(!yes);
  OK(fs.RenameFile("/d/sub/b", "/d/sub/c", kIo, nullptr));
  std::vector<std::string> names;
  OK(fs.GetChildren("/d/sub", kIo, &names, nullptr));
  std::sort(names.begin(), names.end());
  CHECK((names == std::vector<std::string>{"a", "c"}));
  std::vector<FileAttributes> attributes;
  OK(fs.GetChildrenFileAttributes("/d/sub", kIo, &attributes, nullptr));
  CHECK(attributes.size() == 2);
  for (const auto& one : attributes) {
    CHECK(one.size_bytes == (one.name == "a" ? 2 : 3));
  }
  CHECK(fs.GetChildren("/none", kIo, &names, nullptr).IsNotFound());
  CHECK(fs.GetChildrenFileAttributes("/none", kIo, &attributes, nullptr).IsNotFound());
  OK(fs.FileExists("/d/sub/a", kIo, nullptr));
  CHECK(fs.FileExists("/d/sub/x", kIo, nullptr).IsNotFound());
  CHECK(fs.FileExists("/d/sub/a/x", kIo, nullptr).IsNotFound());
  OK(fs.IsDirectory("/d/sub", kIo, &yes, nullptr));
  CHECK(yes);
  OK(fs.IsDirectory("/d/sub/a", kIo, &yes, nullptr));
  CHECK(!yes);
  OK(fs.Truncate("/d/sub/a", 1, kIo, nullptr));
  CHECK(Get(fs, "/d/sub/a") == "a");
  uint64_t seconds = 0, free = 0;
  OK(fs.GetFileModificationTime("/d/sub/a", kIo, &seconds, nullptr));
  CHECK(seconds > 1600000000);
  OK(fs.GetFreeSpace("/d", kIo, &free, nullptr));
  CHECK(free > 1 << 20);
  std::string path;
  OK(fs.GetAbsolutePath("db", kIo, &path, nullptr));
  CHECK(path == "/db");
  OK(fs.GetTestDirectory(kIo, &path, nullptr));
  OK(fs.FileExists(path, kIo, nullptr));
  std::unique_ptr<FSDirectory> directory;
  CHECK(!fs.NewDirectory("/d/sub/a", kIo, &directory, nullptr).ok());
  OK(fs.NewDirectory("/d/sub", kIo, &directory, nullptr));
  OK(directory->FsyncWithDirOptions(kIo, nullptr, DirFsyncOptions("/d/sub/c")));
  const auto before = rig.Counters();
  OK(directory->Fsync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs);
  OK(fs.DeleteFile("/d/sub/c", kIo, nullptr));
  OK(directory->FsyncWithDirOptions(kIo, nullptr, DirFsyncOptions(DirFsyncOptions::kFileDeleted)));
  CHECK(rig.Counters().syncs == before.syncs + 1);
  OK(directory->Close(kIo, nullptr));
  CHECK(!fs.DeleteDir("/d/sub", kIo, nullptr).ok());
  OK(fs.DeleteFile("/d/sub/a", kIo, nullptr));
  CHECK(fs.DeleteFile("/d/sub/a", kIo, nullptr).IsPathNotFound());
  OK(fs.DeleteDir("/d/sub", kIo, nullptr));
}

void Reads(Rig& rig) {
  FileSystem& fs = *rig.fs;
  std::string content;
  for (int i = 0; i < 400000; ++i) {
    content += static_cast<char>(i * 31 + i / 256);
  }
  Put(fs, "/d/r", content);
  std::unique_ptr<FSRandomAccessFile> file;
  OK(fs.NewRandomAccessFile("/d/r", FileOptions(), &file, nullptr));
  std::string room(400100, '\0');
  Slice got;
  OK(file->Read(399000, 2000, kIo, &got, room.data(), nullptr));
  CHECK(got.size() == 1000 && got == Slice(content).ToString().substr(399000));
  OK(file->Read(500000, 10, kIo, &got, room.data(), nullptr));
  CHECK(got.empty());
  char id[64], other[64];
  const size_t length = file->GetUniqueId(id, sizeof id);
  CHECK(length == 24 && file->GetUniqueId(other, 8) == 0);
  CHECK(file->GetUniqueId(other, sizeof other) == length && std::memcmp(id, other, length) == 0);
  // Many at once; one of them ends behind the file.
  std::vector<FSReadRequest> requests(40);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].offset = i == 39 ? 399990 : i * 10000;
    requests[i].len = 1000;
    requests[i].scratch = &room[i * 1000];
  }
  const auto before = rig.Counters();
  OK(file->MultiRead(requests.data(), requests.size(), kIo, nullptr));
  CHECK(rig.Counters().multi_reads == before.multi_reads + 1);
  for (const auto& one : requests) {
    OK(one.status);
    CHECK(one.result == Slice(content).ToString().substr(one.offset, one.len));
  }
  // In flight: some are waited for, some given up.
  struct Seen {
    std::atomic<int> times{0};
    std::string text;
  };
  std::vector<Seen> seen(600);
  std::vector<void*> handles(seen.size(), nullptr);
  std::vector<IOHandleDeleter> deleters(seen.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    FSReadRequest request;
    request.offset = i * 600;
    request.len = 600;
    request.scratch = &room[i * 600];
    OK(file->ReadAsync(
        request, kIo,
        [](const FSReadRequest& done, void* argument) {
          auto* one = static_cast<Seen*>(argument);
          OK(done.status);
          one->text = done.result.ToString();
          ++one->times;
        },
        &seen[i], &handles[i], &deleters[i], nullptr));
  }
  std::vector<void*> waited, given_up;
  size_t aborted = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (handles[i] != nullptr) {
      (i % 3 == 0 ? given_up : waited).push_back(handles[i]);
    }
  }
  CHECK(waited.size() > 10 && given_up.size() > 10);
  OK(fs.AbortIO(given_up));
  OK(fs.Poll(waited, waited.size()));
  for (size_t i = 0; i < seen.size(); ++i) {
    if (handles[i] != nullptr && i % 3 == 0) {
      CHECK(seen[i].times == 0);
      ++aborted;
    } else {
      CHECK(seen[i].times == 1 && seen[i].text == content.substr(i * 600, 600));
    }
    if (handles[i] != nullptr) {
      deleters[i](handles[i]);
    }
  }
  CHECK(aborted == given_up.size());
  std::unique_ptr<FSSequentialFile> sequential;
  OK(fs.NewSequentialFile("/d/r", FileOptions(), &sequential, nullptr));
  OK(sequential->Skip(100));
  OK(sequential->Read(10, kIo, &got, room.data(), nullptr));
  CHECK(got == content.substr(100, 10));
  OK(sequential->Skip(1 << 30));
  OK(sequential->Read(10, kIo, &got, room.data(), nullptr));
  CHECK(got.empty());
  std::unique_ptr<FSRandomRWFile> both;
  OK(fs.NewRandomRWFile("/d/rw", FileOptions(), &both, nullptr));
  OK(both->Write(1000, "there", kIo, nullptr));
  OK(both->Read(998, 100, kIo, &got, room.data(), nullptr));
  CHECK(got == Slice("\0\0there", 7));
  OK(both->Sync(kIo, nullptr));
  OK(both->Close(kIo, nullptr));
  CHECK(fs.NewRandomAccessFile("/d/none", FileOptions(), &file, nullptr).IsPathNotFound());
  CHECK(file == nullptr);
}

void Locks(FileSystem& fs) {
  FileLock *first, *second;
  OK(fs.LockFile("/d/LOCK", kIo, &first, nullptr));
  CHECK(fs.LockFile("/d/LOCK", kIo, &second, nullptr).IsIOError() && second == nullptr);
  OK(fs.UnlockFile(first, kIo, nullptr));
  OK(fs.LockFile("/d/LOCK", kIo, &second, nullptr));
  OK(fs.UnlockFile(second, kIo, nullptr));
}

// A temporary file that is renamed as RocksDB does it is one replacement; one that is looked at before is a file.
void Switches(Rig& rig) {
  FileSystem& fs = *rig.fs;
  Put(fs, "/d/CURRENT", "old");
  auto write = [&](const std::string& name, const std::string& content) {
    auto file = Create(fs, name);
    OK(file->Append(content, kIo, nullptr));
    OK(file->Sync(kIo, nullptr));
    CHECK(file->GetFileSize(kIo, nullptr) == content.size());
    OK(file->Close(kIo, nullptr));
  };
  auto before = rig.Counters();
  write("/d/1.dbtmp", "new");
  OK(fs.RenameFile("/d/1.dbtmp", "/d/CURRENT", kIo, nullptr));
  std::unique_ptr<FSDirectory> directory;
  OK(fs.NewDirectory("/d", kIo, &directory, nullptr));
  OK(directory->FsyncWithDirOptions(kIo, nullptr, DirFsyncOptions("/d/CURRENT")));
  auto after = rig.Counters();
  CHECK(after.replacements == before.replacements + 1 && after.syncs == before.syncs);
  CHECK(Get(fs, "/d/CURRENT") == "new");
  CHECK(fs.FileExists("/d/1.dbtmp", kIo, nullptr).IsNotFound());
  // Looked at; listed; written to after that; of a size for which it is a file like others.
  write("/d/2.dbtmp", "seen");
  CHECK(Get(fs, "/d/2.dbtmp") == "seen");
  OK(fs.RenameFile("/d/2.dbtmp", "/d/CURRENT", kIo, nullptr));
  CHECK(Get(fs, "/d/CURRENT") == "seen" && rig.Counters().replacements == after.replacements);
  auto open = Create(fs, "/d/3.dbtmp");
  OK(open->Append("one ", kIo, nullptr));
  std::vector<std::string> names;
  OK(fs.GetChildren("/d", kIo, &names, nullptr));
  CHECK(std::count(names.begin(), names.end(), "3.dbtmp") == 1);
  OK(open->Append("two", kIo, nullptr));
  OK(open->Sync(kIo, nullptr));
  OK(open->Close(kIo, nullptr));
  OK(fs.RenameFile("/d/3.dbtmp", "/d/CURRENT", kIo, nullptr));
  CHECK(Get(fs, "/d/CURRENT") == "one two");
  const std::string large(3 << 20, 'x');
  write("/d/4.dbtmp", large);
  OK(fs.RenameFile("/d/4.dbtmp", "/d/CURRENT", kIo, nullptr));
  CHECK(Get(fs, "/d/CURRENT") == large);
  write("/d/5.dbtmp", "gone");
  OK(fs.DeleteFile("/d/5.dbtmp", kIo, nullptr));
  CHECK(fs.FileExists("/d/5.dbtmp", kIo, nullptr).IsNotFound());
  write("/d/6.dbtmp", "once");
  write("/d/6.dbtmp", "twice");
  OK(fs.RenameFile("/d/6.dbtmp", "/d/CURRENT", kIo, nullptr));
  CHECK(Get(fs, "/d/CURRENT") == "twice");
}

// Flips a bit of what is appended to logs after its checksum was taken: as a memory that fails would.
struct FaultyWritable : FSWritableFileOwnerWrapper {
  FaultyWritable(std::unique_ptr<FSWritableFile>&& file, std::atomic<bool>* on)
      : FSWritableFileOwnerWrapper(std::move(file)), on_(on) {}
  using FSWritableFileOwnerWrapper::Append;
  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo& info,
                  IODebugContext* dbg) override {
    if (!*on_) {
      return target()->Append(data, options, info, dbg);
    }
    std::string wrong = data.ToString();
    wrong[wrong.size() / 2] ^= 4;
    return target()->Append(wrong, options, info, dbg);
  }
  std::atomic<bool>* on_;
};
struct FaultyFs : FileSystemWrapper {
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "Faulty"; }
  IOStatus NewWritableFile(const std::string& name, const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                           IODebugContext* dbg) override {
    IOStatus status = target()->NewWritableFile(name, options, result, dbg);
    if (status.ok() && name.find(".log") != std::string::npos) {
      result->reset(new FaultyWritable(std::move(*result), &on));
    }
    return status;
  }
  std::atomic<bool> on{false};
};

}  // namespace

int TestFiles(const std::string& target) {
  Rig rig(target);
  OK(rig.fs->CreateDirIfMissing("/d", kIo, nullptr));
  WritableFiles(rig);
  Guesses(rig);
  Names(rig);
  Reads(rig);
  Locks(*rig.fs);
  Switches(rig);
  CHECK(rig.fs->GetId() == "weldfs://" + target);
  return 0;
}

int TestHandoffs(const std::string& target) {
  Rig rig(target);
  OK(rig.fs->CreateDirIfMissing("/h", kIo, nullptr));
  auto file = Create(*rig.fs, "/h/f");
  auto append = [&](const std::string& data, const std::string& checksum) {
    return file->Append(data, kIo, DataVerificationInfo{checksum}, nullptr);
  };
  // Short, a whole command, and longer than a command.
  for (const size_t bytes : {1, 4096, 1 << 20, (1 << 20) + 1, 3 << 20}) {
    const uint64_t size = file->GetFileSize(kIo, nullptr);
    std::string data(bytes, 'd');
    const std::string checksum = Checksum(data);
    OK(append(data, checksum));
    CHECK(file->GetFileSize(kIo, nullptr) == size + bytes);
    data[bytes / 2] ^= 1;
    CHECK(append(data, checksum).IsCorruption());
    CHECK(file->PositionedAppend(data, 0, kIo, DataVerificationInfo{checksum}, nullptr).IsCorruption());
    // Nothing of it is there.
    uint64_t there = 0;
    OK(rig.fs->GetFileSize("/h/f", kIo, &there, nullptr));
    CHECK(there == size + bytes);
  }
  OK(file->Close(kIo, nullptr));
  const std::string content = Get(*rig.fs, "/h/f");
  CHECK(content == std::string(content.size(), 'd'));
  const auto counters = rig.Counters();
  CHECK(counters.handoffs == 9 && counters.handoffs_on_host == 2 && counters.handoff_mismatches == 10);

  // The engine hands checksums over, the device finds the bit, and the commit is refused; what was before is there.
  auto faulty = std::make_shared<FaultyFs>(rig.fs);
  auto env = NewCompositeEnv(faulty);
  Options options = rig.Options();
  options.env = env.get();
  options.checksum_handoff_file_types.Add(FileType::kWalFile);
  WriteOptions synced;
  synced.sync = true;
  {
    DB* raw = nullptr;
    OK(DB::Open(options, "/h/db", &raw));
    std::unique_ptr<DB> db(raw);
    OK(db->Put(synced, "good", "1"));
    faulty->on = true;
    const Status status = db->Put(synced, "bad", "1");
    CHECK(status.IsCorruption());
    faulty->on = false;
  }
  CHECK(rig.Counters().handoff_mismatches == counters.handoff_mismatches + 1);
  auto db = rig.Open("/h/db");
  std::string value;
  OK(db->Get(ReadOptions(), "good", &value));
  CHECK(db->Get(ReadOptions(), "bad", &value).IsNotFound());
  OK(db->Put(synced, "after", "1"));
  return 0;
}
