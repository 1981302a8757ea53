#include "store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weldfs_rocksdb {

IOStatus StatusOf(int64_t error, const std::string& what) { return StatusOf(error, what, weldfs_last_error()); }

IOStatus StatusOf(int64_t error, const std::string& what, const std::string& why) {
  const int errno_ = static_cast<int>(-error);
  IOStatus status;
  switch (errno_) {
    case ENOENT:
      return IOStatus::PathNotFound(what, why);
    case ENOSPC:
    case EDQUOT:
      // As RocksDB has it: writing goes on when there is room again.
      status = IOStatus::NoSpace(what, why);
      status.SetRetryable(true);
      return status;
    case EBADMSG:
      status = IOStatus::Corruption(what, why);
      status.SetDataLoss(true);
      return status;
    case EAGAIN:
    case EBUSY:
      return IOStatus::Busy(what, why);
    case EINVAL:
      return IOStatus::InvalidArgument(what, why);
    case EOPNOTSUPP:
      return IOStatus::NotSupported(what, why);
    case ENODEV:
      return IOStatus::IOError(what, why + " (the device is gone; close the database and make its Env anew)");
    case EBADF:
      return IOStatus::IOError(what, why + " (the session in which it was opened is over)");
    default:
      return IOStatus::IOError(what, why);
  }
}

WeldCounters Counters::Get() const {
  WeldCounters c;
  c.handoffs = handoffs.Get();
  c.handoff_mismatches = handoff_mismatches.Get();
  c.handoffs_on_host = handoffs_on_host.Get();
  c.durable_appends = durable_appends.Get();
  c.unwanted_durable_appends = unwanted_durable_appends.Get();
  c.syncs = syncs.Get();
  c.syncs_done_before = syncs_done_before.Get();
  c.replacements = replacements.Get();
  c.temporaries_written = temporaries_written.Get();
  c.multi_reads = multi_reads.Get();
  c.async_reads = async_reads.Get();
  return c;
}

Status Store::Attach(const std::string& target, const WeldOptions& options, std::shared_ptr<Store>* store) {
  store->reset();
  if (target.empty()) {
    return Status::InvalidArgument("weldfs:// is followed by an image or the socket of a device");
  }
  weldfs_options how;
  std::memset(&how, 0, sizeof how);
  how.size = sizeof how;
  how.durability = WELDFS_VOLATILE;
  how.memory_bytes = options.memory_bytes;
  how.token = options.token.empty() ? nullptr : options.token.c_str();
  std::shared_ptr<Store> made(new Store);
  int error = weldfs_attach_target(target.c_str(), &how, &made->client_);
  if (error < 0) {
    return StatusOf(error, target);
  }
  weldfs_info info;
  error = weldfs_get_info(made->client_, &info);
  if (error < 0) {
    return StatusOf(error, target);
  }
  if (info.medium == WELDFS_MEDIUM_HOSTDIR) {
    return Status::NotSupported(target,
                                "a directory of the host keeps no order among changes; use RocksDB's own file system");
  }
  made->target_ = target;
  made->process_ = getpid();
  made->payload_max_ = info.payload_max;
  std::memcpy(&made->identity_, info.uuid, sizeof made->identity_);
  *store = made;
  return Status::OK();
}

Store::~Store() {
  weldfs_detach(client_);
  if (client_ == nullptr || std::getenv("WELDFS_ROCKSDB_LOG") == nullptr) {
    return;
  }
  const WeldCounters c = counters.Get();
  auto n = [](uint64_t count) { return static_cast<unsigned long long>(count); };
  std::fprintf(stderr,
               "weldfs-rocksdb: %s: handoffs %llu (wrong %llu, on the host %llu), durable appends %llu (unwanted %llu), "
               "syncs %llu (done before %llu), replacements %llu (written apart %llu), multireads %llu, async reads "
               "%llu\n",
               target_.c_str(), n(c.handoffs), n(c.handoff_mismatches), n(c.handoffs_on_host), n(c.durable_appends),
               n(c.unwanted_durable_appends), n(c.syncs), n(c.syncs_done_before), n(c.replacements),
               n(c.temporaries_written), n(c.multi_reads), n(c.async_reads));
}

IOStatus Store::CheckProcess() const {
  return getpid() == process_ ? IOStatus::OK()
                              : IOStatus::IOError(target_, "used in a forked child");
}

void Store::Settled(uint64_t covered) {
  uint64_t known = durable_.load();
  while (known < covered && !durable_.compare_exchange_weak(known, covered)) {
  }
}

IOStatus Store::MakeDurable(uint64_t change, weldfs_file* file, const std::string& what) {
  IOStatus status = CheckProcess();
  if (!status.ok()) {
    return status;
  }
  if (IsDurable(change)) {
    counters.syncs_done_before.Add();
    return IOStatus::OK();
  }
  const uint64_t covered = Covered();
  const int error = file != nullptr ? weldfs_fdatasync(file) : weldfs_sync(client_);
  if (error < 0) {
    return StatusOf(error, what);
  }
  counters.syncs.Add();
  Settled(covered);
  return IOStatus::OK();
}

}  // namespace weldfs_rocksdb
