#include "device.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weldfs {

using leveldb::Status;

Status Failure(const std::string& name, int64_t error) {
  const char* why = weldfs_strerror(static_cast<int>(error));
  return error == -ENOENT ? Status::NotFound(name, why) : Status::IOError(name, why);
}

// Whether the device is over a directory of the host. That has no order of its own, which a sync here relies on.
static bool IsHostDirectory(const weldfs_client* client) {
  const int64_t size = weldfs_stats_json(client, nullptr, 0);
  if (size < 0) return false;
  // It may have grown meanwhile; what is looked for stands at its start or not at all.
  std::string json(static_cast<size_t>(size) + 4096, 0);
  if (weldfs_stats_json(client, &json[0], json.size()) < 0) return false;
  const size_t medium = json.find("\"medium\"");
  if (medium == std::string::npos) return false;
  const size_t value = json.find('"', json.find(':', medium));
  return value != std::string::npos && json.compare(value, 9, "\"hostdir\"") == 0;
}

Device::Device(weldfs_client* client, const weldfs_info& info)
    : client_(client),
      payload_max_(info.payload_max),
      surviving_(info.embedded ? WELDFS_DURABLE : info.durability),
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
  if (IsHostDirectory(client)) {
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
