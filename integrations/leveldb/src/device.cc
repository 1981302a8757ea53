#include "device.h"

#include <unistd.h>

#include <cerrno>

namespace weldfs {

using leveldb::Status;

Status Failure(const std::string& name, int64_t error) {
  const char* why = weldfs_strerror(static_cast<int>(error));
  return error == -ENOENT ? Status::NotFound(name, why) : Status::IOError(name, why);
}

Device::Device(weldfs_client* client, const weldfs_info& info)
    : client_(client),
      payload_max_(info.payload_max),
      process_(getpid()) {}

Status Device::Attach(const std::string& target, std::shared_ptr<Device>* device) {
  weldfs_options options = {};
  options.size = sizeof(options);
  // In order, and durable where LevelDB says so, whatever the device does by default.
  options.durability = WELDFS_VOLATILE;
  weldfs_client* client = nullptr;
  int error = weldfs_attach_target(target.c_str(), &options, &client);
  if (error < 0) {
    return error == -ENOENT ? Status::NotFound(target, weldfs_last_error())
                            : Status::IOError(target, weldfs_last_error());
  }
  weldfs_info info = {};
  error = weldfs_get_info(client, &info);
  if (error < 0) {
    weldfs_detach(client);
    return Failure(target, error);
  }
  // That has no order of its own, which a sync here relies on.
  if (info.medium == WELDFS_MEDIUM_HOSTDIR) {
    weldfs_detach(client);
    return Status::IOError(target, "a directory of the host promises no order of writes; use LevelDB's own Env there");
  }
  device->reset(new Device(client, info));
  return Status::OK();
}

bool Device::is_ours() const { return getpid() == process_; }

bool Device::is_gone() const {
  weldfs_stat root;
  int error = weldfs_stat_path(client_, "/", &root);
  return error == -ENODEV || error == -EIO;
}

}  // namespace weldfs
