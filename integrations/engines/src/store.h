// A key-value engine as the workloads see it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "arguments.h"

namespace drive {

class Store {
 public:
  virtual ~Store() = default;
  // These return what went wrong, or nothing.
  virtual std::string Put(const std::string& key, const std::string& value, bool sync) = 0;
  // `found` false: the key is not there, which is no error of the engine's.
  virtual std::string Get(const std::string& key, std::string* value, bool* found) = 0;
  // Calls `seen` for the first key that is not below `from` and those after it, until it returns false.
  using Seen = std::function<bool(const char* key, size_t key_size, const char* value, size_t value_size)>;
  virtual std::string Scan(const std::string& from, const Seen& seen) = 0;
};

// In the back-end's file. Opens the database, which is made if it is not there.
std::string Open(const Arguments& arguments, std::unique_ptr<Store>* store);
// The engine's name and version.
std::string Engine();

}  // namespace drive
