// The clock of a run: when it starts and ends, how far it is, and what is printed at the end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "arguments.h"
#include "latency.h"

namespace drive {

inline uint64_t Now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// Errors and what was found right, from any thread.
class Findings {
 public:
  // What was read is as it should be.
  void Right(uint64_t values = 1) { verified_.fetch_add(values, std::memory_order_relaxed); }
  void Wrong(const std::string& what);
  // Without an error, counts `right`; else `what` is wrong.
  bool Check(bool right, const std::string& what);
  uint64_t errors() const { return errors_.load(); }
  uint64_t verified() const { return verified_.load(); }
  const std::string& first() const { return first_; }

 private:
  std::atomic<uint64_t> errors_{0};
  std::atomic<uint64_t> verified_{0};
  std::atomic<bool> taken_{false};
  std::string first_;
};

// One thread's part of what is measured.
struct Lane {
  uint64_t number = 0;
  uint64_t operations = 0;
  // Bytes of keys and values, read or written; and those of them that were written.
  uint64_t bytes = 0;
  uint64_t written = 0;
  Latency latency;
};

// A run between its two ends.
class Clock {
 public:
  explicit Clock(const Arguments& arguments) : arguments_(arguments) {}

  // What the device counts, as a JSON object, or nothing: looked at right before the clock starts and when it has
  // ended.
  using Counters = std::function<std::string()>;
  void Watch(Counters counters) { counters_ = std::move(counters); }

  // Runs `body` on so many threads between the two ends of the clock, says how far it is, and returns all lanes' sum.
  // Lanes of numbers from `measured` on are beside the work: the run does not wait for operations of theirs to be
  // enough, and they are not in the sum.
  Lane Run(uint64_t threads, uint64_t measured, const std::function<void(Lane&)>& body);

  // Whether this lane goes on: its share of the operations is not done, and the time is not over.
  bool More(const Lane& lane);
  // The same for a lane beside the work.
  bool Others() const { return !over_.load(std::memory_order_relaxed); }
  double seconds() const { return seconds_; }
  bool ended_by_time() const { return late_.load(); }
  const std::string& device_begin() const { return device_begin_; }
  const std::string& device_end() const { return device_end_; }

 private:
  void Tell(const char* word) const;

  const Arguments& arguments_;
  Counters counters_;
  std::string device_begin_, device_end_;
  uint64_t measured_ = 1;
  uint64_t start_ = 0;
  double seconds_ = 0;
  std::atomic<bool> late_{false};
  std::atomic<bool> over_{false};
  std::atomic<uint64_t> done_{0};
};

// Prints the one JSON object of a run; the program's exit code.
int Print(const Arguments& arguments, const std::string& engine, const Clock& clock, const Lane& sum,
          const Findings& findings);

// The exit code of a run that did not come to its clock.
int Refused(const std::string& why);

}  // namespace drive
