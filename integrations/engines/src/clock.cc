#include "clock.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace drive {

void Findings::Wrong(const std::string& what) {
  if (!taken_.exchange(true)) {
    first_ = what;
    std::fprintf(stderr, "%s\n", what.c_str());
  }
  errors_.fetch_add(1, std::memory_order_relaxed);
}

bool Findings::Check(bool right, const std::string& what) {
  if (right) {
    Right();
  } else {
    Wrong(what);
  }
  return right;
}

void Clock::Tell(const char* word) const {
  if (!arguments_.handshake) return;
  std::fprintf(stderr, "%s\n", word);
  char byte = 0;
  while (byte != '\n') {
    // Whoever started this is gone: nothing is left to be measured for.
    if (read(0, &byte, 1) != 1) std::_Exit(3);
  }
}

bool Clock::More(const Lane& lane) {
  const uint64_t all = arguments_.operations;
  const uint64_t share = all / measured_ + (lane.number < all % measured_ ? 1 : 0);
  if (all > 0 && lane.operations >= share) return false;
  // A look at so many operations: what is done is for the progress alone, the time for the bound.
  constexpr uint64_t kLook = 16;
  if (lane.operations % kLook != 0) return true;
  if (lane.operations > 0) done_.fetch_add(kLook, std::memory_order_relaxed);
  if (arguments_.seconds > 0 && static_cast<double>(Now() - start_) > arguments_.seconds * 1e9) {
    late_.store(true);
    return false;
  }
  return true;
}

Lane Clock::Run(uint64_t threads, uint64_t measured, const std::function<void(Lane&)>& body) {
  measured_ = measured;
  std::vector<std::unique_ptr<Lane>> lanes;
  for (uint64_t i = 0; i < threads; i++) {
    lanes.push_back(std::make_unique<Lane>());
    lanes.back()->number = i;
  }
  Tell("ready");
  if (counters_) device_begin_ = counters_();
  std::atomic<bool> told{false};
  std::thread progress([&] {
    int last = -1;
    for (int tick = 0; !told.load(); tick++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (!arguments_.progress || tick % 10 != 9) continue;
      const double time = arguments_.seconds > 0 ? static_cast<double>(Now() - start_) / 1e9 / arguments_.seconds : 0;
      const auto all = static_cast<double>(arguments_.operations);
      const double work = all > 0 ? static_cast<double>(done_.load()) / all : 0;
      const int percent = std::min(100, static_cast<int>(100 * std::max(time, work)));
      if (percent != last) std::fprintf(stderr, "progress %d\n", last = percent);
    }
  });
  std::vector<std::thread> beside;
  start_ = Now();
  for (uint64_t i = measured; i < threads; i++) beside.emplace_back([&, i] { body(*lanes[i]); });
  std::vector<std::thread> work;
  for (uint64_t i = 1; i < measured; i++) work.emplace_back([&, i] { body(*lanes[i]); });
  body(*lanes[0]);
  for (auto& thread : work) thread.join();
  seconds_ = static_cast<double>(Now() - start_) / 1e9;
  over_.store(true);
  for (auto& thread : beside) thread.join();
  if (counters_) device_end_ = counters_();
  Tell("done");
  told.store(true);
  progress.join();
  Lane sum;
  for (uint64_t i = 0; i < measured; i++) {
    sum.operations += lanes[i]->operations;
    sum.bytes += lanes[i]->bytes;
    sum.written += lanes[i]->written;
    sum.latency.Add(lanes[i]->latency);
  }
  return sum;
}

namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

}  // namespace

int Print(const Arguments& a, const std::string& engine, const Clock& clock, const Lane& sum,
          const Findings& findings) {
  using Big = unsigned long long;
  std::printf("{\"engine\": %s, \"workload\": %s, \"threads\": %llu, \"keys\": %llu, \"value_size\": %llu, ",
              Quoted(engine).c_str(), Quoted(a.workload).c_str(), static_cast<Big>(a.threads),
              static_cast<Big>(a.keys), static_cast<Big>(a.value_size));
  std::printf("\"sync\": %s, \"handoff\": %s, \"cache\": %llu, ", a.sync ? "true" : "false",
              a.handoff ? "true" : "false", static_cast<Big>(a.cache));
  std::printf("\"operations\": %llu, \"seconds\": %.9f, \"bytes\": %llu, \"written\": %llu, \"ended_by_time\": %s, ",
              static_cast<Big>(sum.operations), clock.seconds(), static_cast<Big>(sum.bytes),
              static_cast<Big>(sum.written), clock.ended_by_time() ? "true" : "false");
  std::printf("\"p50_ns\": %llu, \"p99_ns\": %llu, \"p999_ns\": %llu, \"max_ns\": %llu, ",
              static_cast<Big>(sum.latency.At(0.5)), static_cast<Big>(sum.latency.At(0.99)),
              static_cast<Big>(sum.latency.At(0.999)), static_cast<Big>(sum.latency.max()));
  if (!clock.device_begin().empty() && !clock.device_end().empty()) {
    // Objects as the device made them.
    std::printf("\"device_begin\": %s, \"device_end\": %s, ", clock.device_begin().c_str(), clock.device_end().c_str());
  }
  std::printf("\"verified\": %llu, \"errors\": %llu, \"first_error\": %s}\n", static_cast<Big>(findings.verified()),
              static_cast<Big>(findings.errors()), Quoted(findings.first()).c_str());
  return findings.errors() == 0 ? 0 : 1;
}

int Refused(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return 3;
}

}  // namespace drive
