// What a driver is to do: `--name value` pairs. An unknown name, and a value that is no number, end the program.
#pragma once

#include <cstdint>
#include <string>

namespace drive {

struct Arguments {
  // "host", or a WeldFS target: an image, or the socket of a device.
  std::string target = "host";
  // The database: a path of the host's, or from the device's root.
  std::string db;
  std::string workload;
  // Keys (rows) that are there after a load; fill workloads choose among so many.
  uint64_t keys = 100000;
  uint64_t value_size = 100;
  uint64_t threads = 1;
  // Operations of all threads together, and seconds: a run ends with whichever comes first. 0: no such bound.
  uint64_t operations = 0;
  double seconds = 0;
  // Whether each write is durable when it returns.
  bool sync = false;
  // Bytes of the engine's block (page) cache.
  uint64_t cache = 8 << 20;
  uint64_t seed = 1;
  // Reads all that was loaded before the clock starts: a device in this process begins with nothing cached, a kernel
  // that was written to does not.
  bool warm = false;
  // RocksDB: checksums of all file types are handed to the file system.
  bool handoff = false;
  // SQLite: delete, batch, wal or wal-exclusive; and the extension that has the VFS.
  std::string journal = "delete";
  std::string extension;
  // Says `progress N` on standard error while it runs.
  bool progress = false;
  // Says `ready` before the clock starts and `done` when it has ended, and waits for a line on its input each time.
  bool handshake = false;

  static Arguments Parse(int argc, char** argv);
};

// Ends the program: the arguments make no sense.
[[noreturn]] void Usage(const std::string& why);

}  // namespace drive
