// The file system by itself: every call of it, and checksums that are handed over.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
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
  OK(file->Allocate(0, 1 << 20, kIo, nullptr));
  // Within the file: it is no shorter by that, not even when the allocated rest is given back.
  OK(file->PositionedAppend("HE", 0, kIo, nullptr));
  CHECK(file->GetFileSize(kIo, nullptr) == 5);
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
  auto durable = [&] {
    const auto before = rig.Counters().durable_appends;
    OK(file->Append("x", kIo, nullptr));
    return rig.Counters().durable_appends > before;
  };
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
  // A file that is made by its lock, and the engine's log.
  FileLock* lock = nullptr;
  OK(fs.LockFile("/d/sub/lock", kIo, &lock, nullptr));
  OK(fs.UnlockFile(lock, kIo, nullptr));
  OK(directory->Fsync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 2);
  std::shared_ptr<Logger> log;
  OK(fs.NewLogger("/d/sub/log", kIo, &log, nullptr));
  OK(directory->Fsync(kIo, nullptr));
  CHECK(rig.Counters().syncs == before.syncs + 3);
  OK(log->Close());
  OK(directory->Close(kIo, nullptr));
  OK(fs.DeleteFile("/d/sub/lock", kIo, nullptr));
  OK(fs.DeleteFile("/d/sub/log", kIo, nullptr));
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
    } else {
      CHECK(seen[i].times == 1 && seen[i].text == content.substr(i * 600, 600));
    }
    if (handles[i] != nullptr) {
      deleters[i](handles[i]);
    }
  }
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

// A read that fails tells its own reason, not that of another call.
void FailedReads(FileSystem& fs) {
  std::unique_ptr<FSRandomAccessFile> file;
  // There is nothing to read in a directory.
  OK(fs.NewRandomAccessFile("/d", FileOptions(), &file, nullptr));
  CHECK(fs.FileExists("/d/none", kIo, nullptr).IsNotFound());
  char room[20];
  auto is_told = [](const IOStatus& status) {
    const std::string said = status.ToString();
    return status.IsIOError() && said.find("directory") != std::string::npos && said.find("none") == std::string::npos;
  };
  std::vector<FSReadRequest> requests(2);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].len = 10;
    requests[i].scratch = room + 10 * i;
  }
  OK(file->MultiRead(requests.data(), requests.size(), kIo, nullptr));
  for (const auto& one : requests) {
    CHECK(is_told(one.status));
  }
  void* handle = nullptr;
  IOHandleDeleter deleter;
  IOStatus seen;
  OK(file->ReadAsync(
      requests[0], kIo,
      [](const FSReadRequest& done, void* argument) { *static_cast<IOStatus*>(argument) = done.status; }, &seen,
      &handle, &deleter, nullptr));
  CHECK(fs.FileExists("/d/none", kIo, nullptr).IsNotFound());
  std::vector<void*> handles = {handle};
  OK(fs.Poll(handles, 1));
  CHECK(is_told(seen));
  if (handle != nullptr) {
    deleter(handle);
  }
}

void Locks(FileSystem& fs) {
  FileLock *first, *second;
  OK(fs.LockFile("/d/LOCK", kIo, &first, nullptr));
  CHECK(fs.LockFile("/d/LOCK", kIo, &second, nullptr).IsIOError() && second == nullptr);
  OK(fs.UnlockFile(first, kIo, nullptr));
  OK(fs.LockFile("/d/LOCK", kIo, &second, nullptr));
  OK(fs.UnlockFile(second, kIo, nullptr));
}

void PutSynced(FileSystem& fs, const std::string& name, const std::string& content) {
  auto file = Create(fs, name);
  OK(file->Append(content, kIo, nullptr));
  OK(file->Sync(kIo, nullptr));
  CHECK(file->GetFileSize(kIo, nullptr) == content.size());
  OK(file->Close(kIo, nullptr));
}

bool IsListed(FileSystem& fs, const std::string& directory, const std::string& name, uint64_t size) {
  std::vector<std::string> names;
  OK(fs.GetChildren(directory, kIo, &names, nullptr));
  std::vector<FileAttributes> files;
  OK(fs.GetChildrenFileAttributes(directory, kIo, &files, nullptr));
  auto is_it = [&](const FileAttributes& one) { return one.name == name && one.size_bytes == size; };
  const auto count = std::count_if(files.begin(), files.end(), is_it);
  CHECK(count == std::count(names.begin(), names.end(), name) && count <= 1);
  return count == 1;
}

// A temporary file that is renamed as RocksDB does it is one replacement; one that is read before is a file.
void Switches(Rig& rig) {
  FileSystem& fs = *rig.fs;
  Put(fs, "/d/CURRENT", "old");
  auto write = [&](const std::string& name, const std::string& content) { PutSynced(fs, name, content); };
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
  // Listed and asked for, under another spelling of the directory, too: nothing is written by that.
  write("/d/2.dbtmp", "seen");
  CHECK(IsListed(fs, "/d", "2.dbtmp", 4) && IsListed(fs, "d//", "2.dbtmp", 4) && !IsListed(fs, "/", "2.dbtmp", 4));
  OK(fs.FileExists("/d//2.dbtmp", kIo, nullptr));
  CHECK(rig.Counters().temporaries_written == after.temporaries_written);
  // Read: it is written, durably, as the sync of it was put off; that of the directory has nothing left to do.
  CHECK(Get(fs, "/d/2.dbtmp") == "seen");
  OK(directory->Fsync(kIo, nullptr));
  CHECK(rig.Counters().temporaries_written == after.temporaries_written + 1 && rig.Counters().syncs == after.syncs);
  OK(fs.RenameFile("/d/2.dbtmp", "/d/CURRENT", kIo, nullptr));
  CHECK(Get(fs, "/d/CURRENT") == "seen" && rig.Counters().replacements == after.replacements);
  // Read while it is open, and written to after that; of a size for which it is a file like others.
  auto open = Create(fs, "/d/3.dbtmp");
  OK(open->Append("one ", kIo, nullptr));
  CHECK(Get(fs, "/d/3.dbtmp") == "one ");
  CHECK(IsListed(fs, "/d", "3.dbtmp", 4));
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

// Temporary files in folders that are not there, are removed or renamed; and folders of such a name.
void SwitchesOfFolders(FileSystem& fs) {
  std::unique_ptr<FSWritableFile> file;
  CHECK(fs.NewWritableFile("/d/none/1.dbtmp", FileOptions(), &file, nullptr).IsPathNotFound() && file == nullptr);
  CHECK(fs.NewWritableFile("/d/CURRENT/1.dbtmp", FileOptions(), &file, nullptr).IsIOError() && file == nullptr);
  OK(fs.CreateDir("/d/folder.dbtmp", kIo, nullptr));
  CHECK(fs.NewWritableFile("/d/folder.dbtmp", FileOptions(), &file, nullptr).IsIOError() && file == nullptr);
  OK(fs.DeleteDir("/d/folder.dbtmp", kIo, nullptr));
  PutSynced(fs, "/d/file.dbtmp", "f");
  CHECK(!fs.CreateDir("/d/file.dbtmp", kIo, nullptr).ok());
  OK(fs.DeleteFile("/d/file.dbtmp", kIo, nullptr));
  PutSynced(fs, "/d/file.dbtmp", "f");
  CHECK(!fs.CreateDirIfMissing("/d/file.dbtmp", kIo, nullptr).ok());
  OK(fs.DeleteFile("/d/file.dbtmp", kIo, nullptr));
  OK(fs.CreateDir("/d/f", kIo, nullptr));
  OK(fs.CreateDir("/d/g", kIo, nullptr));
  PutSynced(fs, "/d/f/1.dbtmp", "in f");
  CHECK(!fs.DeleteDir("/d/f/", kIo, nullptr).ok());
  PutSynced(fs, "/d/f/2.dbtmp", "too");
  CHECK(!fs.RenameFile("/d/g", "/d/f", kIo, nullptr).ok());
  PutSynced(fs, "/d/f/3.dbtmp", "moved");
  OK(fs.RenameFile("/d/f", "/d/h", kIo, nullptr));
  CHECK(Get(fs, "/d/h/1.dbtmp") == "in f" && Get(fs, "/d/h/2.dbtmp") == "too" && Get(fs, "/d/h/3.dbtmp") == "moved");
  for (const char* name : {"1.dbtmp", "2.dbtmp", "3.dbtmp"}) {
    OK(fs.DeleteFile(std::string("/d/h/") + name, kIo, nullptr));
  }
  OK(fs.DeleteDir("/d/h", kIo, nullptr));
  OK(fs.DeleteDir("/d/g", kIo, nullptr));
}

// The end of a file system writes what is kept, though the folder of one was removed by another program.
void SwitchesAtTheEnd(FileSystem& fs, const std::string& target) {
  OK(fs.CreateDir("/d/a", kIo, nullptr));
  OK(fs.CreateDir("/d/b", kIo, nullptr));
  {
    Rig other(target);
    PutSynced(*other.fs, "/d/a/1.dbtmp", "a");
    PutSynced(*other.fs, "/d/b/1.dbtmp", "b");
    OK(fs.DeleteDir("/d/a", kIo, nullptr));
    // What is kept for a folder that is not there is in the way of no other one.
    CHECK(IsListed(*other.fs, "/d/b", "1.dbtmp", 1));
  }
  CHECK(Get(fs, "/d/b/1.dbtmp") == "b");
  OK(fs.DeleteFile("/d/b/1.dbtmp", kIo, nullptr));
  OK(fs.DeleteDir("/d/b", kIo, nullptr));
}

// An open temporary file is that one, whatever becomes of its name.
void SwitchesOfOpenFiles(FileSystem& fs) {
  auto renamed = Create(fs, "/d/o.dbtmp");
  OK(renamed->Append("old ", kIo, nullptr));
  OK(fs.RenameFile("/d/o.dbtmp", "/d/o", kIo, nullptr));
  PutSynced(fs, "/d/o.dbtmp", "of another file");
  OK(renamed->Append("and on", kIo, nullptr));
  OK(renamed->Sync(kIo, nullptr));
  OK(renamed->Close(kIo, nullptr));
  CHECK(Get(fs, "/d/o") == "old and on" && Get(fs, "/d/o.dbtmp") == "of another file");
  CHECK(!renamed->Append("x", kIo, nullptr).ok());

  auto removed = Create(fs, "/d/o.dbtmp");
  OK(fs.DeleteFile("/d/o.dbtmp", kIo, nullptr));
  auto anew = Create(fs, "/d/o.dbtmp");
  auto again = Create(fs, "/d/o.dbtmp");
  OK(again->Append("last", kIo, nullptr));
  for (FSWritableFile* gone : {removed.get(), anew.get()}) {
    CHECK(gone->Append("x", kIo, nullptr).IsIOError() && gone->Truncate(1, kIo, nullptr).IsIOError());
    CHECK(gone->Sync(kIo, nullptr).IsIOError());
    OK(gone->Close(kIo, nullptr));
  }
  OK(again->Close(kIo, nullptr));
  CHECK(Get(fs, "/d/o.dbtmp") == "last");
  OK(fs.DeleteFile("/d/o.dbtmp", kIo, nullptr));
}

// One thread makes files of a name and renames them, another one renames whatever it finds there: the file that was
// made last arrives, whichever of the two renames it.
void SwitchesAtOnce(FileSystem& fs) {
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      const IOStatus status = fs.RenameFile("/d/a.dbtmp", "/d/A", kIo, nullptr);
      CHECK(status.ok() || status.IsPathNotFound());
    }
  });
  for (int i = 0; i < 100; ++i) {
    auto file = Create(fs, "/d/a.dbtmp");
    OK(file->Append(std::to_string(i), kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    const IOStatus status = fs.RenameFile("/d/a.dbtmp", "/d/A", kIo, nullptr);
    CHECK(status.ok() || status.IsPathNotFound());
    CHECK(Get(fs, "/d/A") == std::to_string(i));
  }
  over = true;
  other.join();
}

// A forked child is refused, and does its parent no harm.
void Forks(FileSystem& fs, const std::string& target) {
  auto open = Create(fs, "/d/fork");
  OK(open->Append("parent", kIo, nullptr));
  auto kept = Create(fs, "/d/fork.dbtmp");
  OK(kept->Append("parent", kIo, nullptr));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    std::vector<std::string> names;
    std::vector<FileAttributes> files;
    std::unique_ptr<FSWritableFile> file;
    std::unique_ptr<FSDirectory> directory;
    uint64_t n = 0;
    FileLock* lock = nullptr;
    CHECK(open->Append("child", kIo, nullptr).IsIOError() && open->Sync(kIo, nullptr).IsIOError());
    CHECK(kept->Append("child", kIo, nullptr).IsIOError() && kept->Sync(kIo, nullptr).IsIOError());
    CHECK(fs.FileExists("/d", kIo, nullptr).IsIOError() && fs.FileExists("/d/none", kIo, nullptr).IsIOError());
    CHECK(fs.GetChildren("/d", kIo, &names, nullptr).IsIOError());
    CHECK(fs.GetChildrenFileAttributes("/d", kIo, &files, nullptr).IsIOError());
    CHECK(fs.NewWritableFile("/d/child", FileOptions(), &file, nullptr).IsIOError());
    CHECK(fs.NewWritableFile("/d/child.dbtmp", FileOptions(), &file, nullptr).IsIOError());
    CHECK(fs.NewDirectory("/d", kIo, &directory, nullptr).IsIOError());
    CHECK(fs.CreateDir("/d/child", kIo, nullptr).IsIOError());
    CHECK(fs.CreateDirIfMissing("/d", kIo, nullptr).IsIOError());
    CHECK(fs.DeleteDir("/d/child", kIo, nullptr).IsIOError());
    CHECK(fs.DeleteFile("/d/fork", kIo, nullptr).IsIOError());
    CHECK(fs.DeleteFile("/d/fork.dbtmp", kIo, nullptr).IsIOError());
    CHECK(fs.RenameFile("/d/fork.dbtmp", "/d/fork", kIo, nullptr).IsIOError());
    CHECK(fs.LinkFile("/d/fork", "/d/child", kIo, nullptr).IsIOError());
    CHECK(fs.Truncate("/d/fork", 0, kIo, nullptr).IsIOError());
    CHECK(fs.GetFileSize("/d/fork", kIo, &n, nullptr).IsIOError());
    CHECK(fs.GetFreeSpace("/d", kIo, &n, nullptr).IsIOError());
    CHECK(fs.LockFile("/d/fork", kIo, &lock, nullptr).IsIOError());
    if (target.find(".sock") != std::string::npos) {
      Rig own(target);
      Put(*own.fs, "/d/own", "child");
    }
    // As another program: Valgrind would take what the threads of the parent have on their stacks for lost here.
    execl("/bin/true", "true", nullptr);
    _exit(1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(open->Append(" goes on", kIo, nullptr));
  OK(kept->Append(" too", kIo, nullptr));
  OK(kept->Close(kIo, nullptr));
  CHECK(Get(fs, "/d/fork") == "parent goes on" && Get(fs, "/d/fork.dbtmp") == "parent too");
  CHECK(fs.FileExists("/d/child", kIo, nullptr).IsNotFound());
  CHECK(fs.FileExists("/d/own", kIo, nullptr).ok() == (target.find(".sock") != std::string::npos));
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
  FailedReads(*rig.fs);
  Locks(*rig.fs);
  Switches(rig);
  SwitchesOfFolders(*rig.fs);
  SwitchesOfOpenFiles(*rig.fs);
  SwitchesAtTheEnd(*rig.fs, target);
  SwitchesAtOnce(*rig.fs);
  Forks(*rig.fs, target);
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
