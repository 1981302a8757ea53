// What is said of calls and files: priorities and lifetimes.

#include <string>
#include <vector>

#include "check.h"
#include "rocksdb/file_system.h"

using namespace rocksdb;

// Commands with a priority of their own: 6, as `parts.rs` counts them; with a lifetime: 5.
int TestHints(const std::string& target) {
  Rig rig(target);
  const std::string block(4096, 'h');
  const auto urgent = [](Env::IOPriority priority) {
    IOOptions options;
    options.rate_limiter_priority = priority;
    return options;
  };
  const IOOptions kIo;
  std::unique_ptr<FSWritableFile> file;
  OK(rig.fs->NewWritableFile("/hinted", FileOptions(), &file, nullptr));
  OK(file->Append(block, kIo, nullptr));
  file->SetWriteLifeTimeHint(Env::WLTH_NONE);
  OK(file->Append(block, kIo, nullptr));
  file->SetWriteLifeTimeHint(Env::WLTH_MEDIUM);
  CHECK(file->GetWriteLifeTimeHint() == Env::WLTH_MEDIUM);
  OK(file->Append(block, kIo, nullptr));  // lifetime
  file->SetIOPriority(Env::IO_LOW);
  CHECK(file->GetIOPriority() == Env::IO_LOW);
  OK(file->Append(block, kIo, nullptr));                          // both: the file's priority
  OK(file->Append(block, urgent(Env::IO_USER), nullptr));         // both: the call's
  OK(file->Append(block, urgent(Env::IO_HIGH), nullptr));         // lifetime: as urgent as others
  OK(file->PositionedAppend(block, 0, urgent(Env::IO_MID), nullptr));  // both
  file->SetWriteLifeTimeHint(Env::WLTH_NOT_SET);
  file->SetIOPriority(Env::IO_TOTAL);
  OK(file->Close(kIo, nullptr));

  std::unique_ptr<FSRandomAccessFile> random;
  OK(rig.fs->NewRandomAccessFile("/hinted", FileOptions(), &random, nullptr));
  std::string room(4096, '\0');
  Slice part;
  OK(random->Read(0, room.size(), urgent(Env::IO_USER), &part, room.data(), nullptr));  // priority
  CHECK(part == block);
  OK(random->Read(0, room.size(), kIo, &part, room.data(), nullptr));
  FSReadRequest requests[2];
  for (auto& request : requests) {
    request.offset = 0;
    request.len = 2048;
    request.scratch = room.data() + 2048 * (&request - requests);
  }
  OK(random->MultiRead(requests, 2, urgent(Env::IO_LOW), nullptr));  // priority: one command
  CHECK(requests[0].status.ok() && requests[1].result == Slice(block.data(), 2048));
  void* handle = nullptr;
  IOHandleDeleter free;
  bool done = false;
  FSReadRequest later;
  later.offset = 0;
  later.len = 4096;
  later.scratch = room.data();
  OK(random->ReadAsync(
      later, urgent(Env::IO_MID),
      [](const FSReadRequest& request, void* flag) { *static_cast<bool*>(flag) = request.status.ok(); }, &done, &handle,
      &free, nullptr));  // priority
  std::vector<void*> handles{handle};
  OK(rig.fs->Poll(handles, 1));
  CHECK(done);
  free(handle);
  return 0;
}
