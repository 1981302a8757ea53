// RocksDB on a WeldFS device: a FileSystem over an image, or over the socket of a device.
//
// By URI, in every program that takes one (`--fs_uri=weldfs://disk.img`), or from code:
//
//   std::shared_ptr<rocksdb::FileSystem> fs;
//   rocksdb::Status s = rocksdb::NewWeldFileSystem("disk.img", &fs);
//   std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);   // options.env = env.get()
//
// docs/engines/ROCKSDB.md of WeldFS is the introduction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rocksdb/file_system.h"
#include "rocksdb/status.h"

namespace ROCKSDB_NAMESPACE {

// Before a target, in a URI.
constexpr const char* kWeldScheme = "weldfs://";

struct WeldOptions {
  // Bytes of memory that a device in this process may take if this call is the one that starts it; 0: 256 MiB.
  uint64_t memory_bytes = 0;
  // A tenant's token; empty: that of the environment (WELDFS_TENANT_TOKEN), if any.
  std::string token;
};

// What a file system did, since it was made.
struct WeldCounters {
  // Appends whose checksum, as RocksDB handed it over, the device verified in the command that wrote them; those of
  // them that did not match, of which nothing was written; and appends above the payload of one command, verified in
  // this process before they were written in pieces.
  uint64_t handoffs = 0;
  uint64_t handoff_mismatches = 0;
  uint64_t handoffs_on_host = 0;
  // Appends that were made durable by the command that wrote them; and those of them that were so because a Sync was
  // expected to be next, when another append was.
  uint64_t durable_appends = 0;
  uint64_t unwanted_durable_appends = 0;
  // Sync and directory syncs that were a command, and that had nothing left to do.
  uint64_t syncs = 0;
  uint64_t syncs_done_before = 0;
  // Temporary files that were renamed as one atomic replacement, and those that had to be written by themselves.
  uint64_t replacements = 0;
  uint64_t temporaries_written = 0;
  // Calls of MultiRead that were one submission, and asynchronous reads.
  uint64_t multi_reads = 0;
  uint64_t async_reads = 0;
};

// A file system on a target: an image, or the socket of a device, with or without `weldfs://` in front.
Status NewWeldFileSystem(const std::string& target, std::shared_ptr<FileSystem>* result,
                         const WeldOptions& options = WeldOptions());

// The counters of a file system that NewWeldFileSystem or a URI made (not of a wrapper around it); false for others.
bool GetWeldCounters(const FileSystem* fs, WeldCounters* counters);

}  // namespace ROCKSDB_NAMESPACE

// For programs that open the shared library by name: does nothing that loading it has not done. Returns 1.
extern "C" int weldfs_rocksdb_register();
