// An attachment to a device, and errors as LevelDB's Status.
#ifndef WELDFS_LEVELDB_DEVICE_H
#define WELDFS_LEVELDB_DEVICE_H

#include <sys/types.h>

#include <memory>
#include <string>

#include "leveldb/status.h"
#include "weldfs.h"

namespace weldfs {

// The Status of a negative errno: NotFound for what is not there, else IOError.
leveldb::Status Failure(const std::string& name, int64_t error);

// One attachment for all files and databases of an Env on a target. It ends with the last file that refers to it.
class Device {
 public:
  static leveldb::Status Attach(const std::string& target, std::shared_ptr<Device>* device);
  ~Device() { weldfs_detach(client_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const weldfs_client* client() const { return client_; }
  // Bytes of the largest write that is one command.
  size_t payload_max() const { return payload_max_; }
  // Whether it is usable in this process: a child has no part in the databases of its parent.
  bool is_ours() const;
  // Whether the device is gone. Its files are, too: nothing but a new attachment helps.
  bool is_gone() const;

 private:
  Device(weldfs_client* client, const weldfs_info& info);

  weldfs_client* const client_;
  const size_t payload_max_;
  const pid_t process_;
};

}  // namespace weldfs

#endif
