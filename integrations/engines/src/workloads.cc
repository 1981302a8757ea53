#include "workloads.h"

#include <atomic>
#include <chrono>
#include <map>
#include <vector>

#include "device.h"
#include "value.h"
#include "zipf.h"

namespace drive {

namespace {

// Longest scan of YCSB's workload E.
constexpr uint64_t kScanMax = 100;
// Values that are read back when the clock has stopped and the database was opened anew.
constexpr uint64_t kReadBack = 1000;

enum class Access { kNone, kUniform, kZipf, kLatest };

// What a lane does: parts of a hundred, the rest are reads.
struct Mix {
  uint64_t updates = 0, inserts = 0, scans = 0, read_updates = 0;
  Access access = Access::kUniform;
};

struct Workload {
  enum Kind { kLoad, kFillSeq, kWrite, kMix, kSeek, kReadWhileWriting, kCheck, kDamage } kind = kMix;
  Mix mix;
  // Whether every key was loaded before.
  bool loaded = true;
};

const std::map<std::string, Workload>& Known() {
  static const std::map<std::string, Workload> known = {
      {"load", {Workload::kLoad, {}, false}},
      {"fillseq", {Workload::kFillSeq, {}, false}},
      {"fillrandom", {Workload::kWrite, {}, false}},
      {"fillsync", {Workload::kWrite, {}, false}},
      {"overwrite", {Workload::kWrite, {}, true}},
      {"readrandom", {Workload::kMix, {}, true}},
      {"readwhilewriting", {Workload::kReadWhileWriting, {}, true}},
      {"seekrandom", {Workload::kSeek, {}, true}},
      {"ycsb-a", {Workload::kMix, {50, 0, 0, 0, Access::kZipf}, true}},
      {"ycsb-b", {Workload::kMix, {5, 0, 0, 0, Access::kZipf}, true}},
      {"ycsb-c", {Workload::kMix, {0, 0, 0, 0, Access::kZipf}, true}},
      {"ycsb-d", {Workload::kMix, {0, 5, 0, 0, Access::kLatest}, true}},
      {"ycsb-e", {Workload::kMix, {0, 5, 95, 0, Access::kZipf}, true}},
      {"ycsb-f", {Workload::kMix, {0, 0, 0, 50, Access::kZipf}, true}},
      {"check", {Workload::kCheck, {}, true}},
      {"damage", {Workload::kDamage, {}, true}},
  };
  return known;
}

class Run {
 public:
  Run(const Arguments& arguments, const Workload& workload)
      : a_(arguments),
        workload_(workload),
        values_(arguments.value_size),
        clock_(a_),
        // Later than those of every run before: what is stale can be told from what was written in this one.
        first_version_(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                                 std::chrono::system_clock::now().time_since_epoch())
                                                 .count())),
        version_(first_version_),
        records_(arguments.keys),
        acknowledged_(arguments.keys),
        last_(arguments.keys + (workload.mix.inserts > 0 ? arguments.operations : 0)),
        shuffled_(arguments.keys),
        zipf_(workload.mix.access == Access::kUniform ? 1 : arguments.keys) {}

  int Go();

 private:
  bool one_writer() const {
    return workload_.kind == Workload::kReadWhileWriting || a_.threads == 1 || workload_.kind == Workload::kLoad ||
           workload_.kind == Workload::kFillSeq;
  }
  std::string Opened() { return Open(a_, &store_); }

  void Do(Lane& lane, Random& random);
  void Mixed(Lane& lane, Random& random);
  uint64_t Pick(Random& random);
  void Put(uint64_t key, Lane* lane);
  void Insert(Lane& lane);
  bool Get(uint64_t key, Lane* lane);
  void Scan(uint64_t from, uint64_t length, Lane& lane);
  void CheckAll(Lane& lane);
  void Warm();
  void Damage(Lane& lane);
  void ReadBack();
  bool Right(uint64_t key, const char* data, size_t size, uint64_t at_least);

  const Arguments& a_;
  const Workload& workload_;
  const Values values_;
  Clock clock_;
  Findings findings_;
  std::unique_ptr<Store> store_;
  const uint64_t first_version_;
  std::atomic<uint64_t> version_;
  // Numbers given to records, and those below which all were acknowledged.
  std::atomic<uint64_t> records_;
  std::atomic<uint64_t> acknowledged_;
  // The version of each key that was acknowledged last in this run; 0: none. Between writers the engine decides which
  // of two is the later one, so it is compared only where one writes.
  std::vector<std::atomic<uint64_t>> last_;
  const Shuffled shuffled_;
  const Zipf zipf_;
};

bool Run::Right(uint64_t key, const char* data, size_t size, uint64_t at_least) {
  uint64_t version = 0;
  if (!findings_.Check(values_.Check(key, data, size, &version), "the value of key " + Key(key) + " is wrong")) {
    return false;
  }
  if (version >= at_least) return true;
  findings_.Wrong("the value of key " + Key(key) + " is older than one that was acknowledged");
  return false;
}

void Run::Put(uint64_t key, Lane* lane) {
  static thread_local std::string value;
  const uint64_t version = ++version_;
  values_.Make(key, version, &value);
  const std::string wrong = store_->Put(Key(key), value, a_.sync);
  if (!wrong.empty()) return findings_.Wrong("put: " + wrong);
  last_[key].store(version, std::memory_order_release);
  if (lane != nullptr) {
    lane->bytes += kKeySize + value.size();
    lane->written += kKeySize + value.size();
  }
}

void Run::Insert(Lane& lane) {
  const uint64_t key = records_.fetch_add(1);
  Put(key, &lane);
  // Moves the bound over everything that was acknowledged in the meantime, whoever did it.
  uint64_t bound = acknowledged_.load();
  while (bound < last_.size() && last_[bound].load(std::memory_order_acquire) != 0) {
    if (acknowledged_.compare_exchange_weak(bound, bound + 1)) bound++;
  }
}

bool Run::Get(uint64_t key, Lane* lane) {
  static thread_local std::string value;
  const uint64_t at_least = one_writer() ? last_[key].load(std::memory_order_acquire) : 0;
  bool found = false;
  const std::string wrong = store_->Get(Key(key), &value, &found);
  if (!wrong.empty()) {
    findings_.Wrong("get: " + wrong);
    return false;
  }
  if (!found) {
    findings_.Wrong("key " + Key(key) + " is missing");
    return false;
  }
  if (lane != nullptr) lane->bytes += kKeySize + value.size();
  return Right(key, value.data(), value.size(), at_least);
}

void Run::Scan(uint64_t from, uint64_t length, Lane& lane) {
  uint64_t seen = 0;
  const std::string wrong = store_->Scan(Key(from), [&](const char* k, size_t ks, const char* v, size_t vs) {
    uint64_t number = 0;
    // Behind the loaded records there may be holes while others insert.
    if (!NumberOf(k, ks, &number) || number < from + seen || (number != from + seen && from + seen < a_.keys)) {
      findings_.Wrong("a scan from " + Key(from) + " has another record in place " + std::to_string(seen));
      return false;
    }
    lane.bytes += ks + vs;
    return Right(number, v, vs, 0) && ++seen < length;
  });
  if (!wrong.empty()) return findings_.Wrong("scan: " + wrong);
  if (seen < std::min(length, a_.keys - std::min(from, a_.keys)) && findings_.errors() == 0) {
    findings_.Wrong("a scan from " + Key(from) + " ended after " + std::to_string(seen) + " records");
  }
}

uint64_t Run::Pick(Random& random) {
  switch (workload_.mix.access) {
    case Access::kZipf:
      return zipf_.Scrambled(random);
    case Access::kLatest:
      return acknowledged_.load(std::memory_order_acquire) - 1 - zipf_.Rank(random);
    default:
      return random.Below(a_.keys);
  }
}

void Run::Mixed(Lane& lane, Random& random) {
  const Mix& mix = workload_.mix;
  uint64_t part = random.Below(100);
  const auto is = [&part](uint64_t share) {
    if (part < share) return true;
    part -= share;
    return false;
  };
  if (is(mix.updates)) return Put(Pick(random), &lane);
  if (is(mix.inserts)) return Insert(lane);
  if (is(mix.scans)) return Scan(Pick(random), 1 + random.Below(kScanMax), lane);
  const uint64_t key = Pick(random);
  Get(key, &lane);
  if (is(mix.read_updates)) Put(key, &lane);
}

void Run::Do(Lane& lane, Random& random) {
  switch (workload_.kind) {
    case Workload::kLoad:
      return Put(shuffled_.At(lane.operations), &lane);
    case Workload::kFillSeq:
      return Put(lane.operations, &lane);
    case Workload::kWrite:
      return Put(random.Below(a_.keys), &lane);
    case Workload::kSeek:
      return Scan(random.Below(a_.keys), 1, lane);
    default:
      return Mixed(lane, random);
  }
}

void Run::CheckAll(Lane& lane) {
  uint64_t next = 0;
  const std::string wrong = store_->Scan(Key(0), [&](const char* k, size_t ks, const char* v, size_t vs) {
    uint64_t number = 0;
    findings_.Check(NumberOf(k, ks, &number) && number == next, "key " + Key(next) + " is missing");
    next = number + 1;
    Right(number, v, vs, 0);
    lane.operations++;
    return true;
  });
  findings_.Check(wrong.empty(), "scan: " + wrong);
  findings_.Check(next >= a_.keys, "the records end before " + Key(a_.keys));
}

void Run::Warm() {
  const std::string wrong =
      store_->Scan(Key(0), [](const char*, size_t, const char*, size_t) { return true; });
  findings_.Check(wrong.empty(), "scan: " + wrong);
}

void Run::Damage(Lane& lane) {
  for (uint64_t key = 0; key < a_.keys; key += 10, lane.operations++) {
    std::string value;
    values_.Make(key, ++version_, &value);
    value.back() = static_cast<char>(value.back() ^ 1);
    const std::string wrong = store_->Put(Key(key), value, true);
    if (!wrong.empty()) return findings_.Wrong("put: " + wrong);
  }
}

// What was written, from a database that was closed and opened anew.
void Run::ReadBack() {
  std::vector<uint64_t> written;
  for (uint64_t key = 0; key < last_.size(); key++) {
    if (last_[key].load() != 0) written.push_back(key);
  }
  if (written.empty()) return;
  store_.reset();
  const std::string wrong = Opened();
  if (!wrong.empty()) return findings_.Wrong("opened anew: " + wrong);
  Random random(a_.seed + 1);
  for (uint64_t i = 0; i < std::min<uint64_t>(kReadBack, written.size()); i++) {
    Get(written[random.Below(written.size())], nullptr);
  }
}

int Run::Go() {
  const std::string wrong = Opened();
  if (!wrong.empty()) return Refused(wrong);
  const bool beside = workload_.kind == Workload::kReadWhileWriting;
  if (a_.warm && workload_.loaded) Warm();
  if (a_.target != "host") clock_.Watch([this] { return DeviceCounters(a_.target); });
  const Lane sum = clock_.Run(a_.threads + (beside ? 1 : 0), a_.threads, [&](Lane& lane) {
    Random random(a_.seed * 1000 + lane.number);
    if (workload_.kind == Workload::kCheck) return CheckAll(lane);
    if (workload_.kind == Workload::kDamage) return Damage(lane);
    if (lane.number >= a_.threads) {
      while (clock_.Others() && findings_.errors() == 0) Put(random.Below(a_.keys), nullptr);
      return;
    }
    // An engine that failed once goes on failing: the first error is what counts.
    while (findings_.errors() == 0 && clock_.More(lane)) {
      const uint64_t start = Now();
      Do(lane, random);
      lane.latency.Add(Now() - start);
      lane.operations++;
    }
  });
  if (findings_.errors() == 0) ReadBack();
  store_.reset();
  return Print(a_, Engine(), clock_, sum, findings_);
}

}  // namespace

int RunWorkload(Arguments a) {
  const auto found = Known().find(a.workload);
  if (found == Known().end()) Usage("no workload is called " + a.workload);
  const Workload& workload = found->second;
  if (a.value_size < Values::kLeast) Usage("values have at least " + std::to_string(Values::kLeast) + " bytes");
  const bool once = workload.kind == Workload::kLoad || workload.kind == Workload::kFillSeq;
  const bool whole = workload.kind == Workload::kCheck || workload.kind == Workload::kDamage;
  if ((once || whole) && a.threads != 1) Usage(a.workload + " is of one thread");
  if (once) a.operations = a.operations == 0 ? a.keys : std::min(a.operations, a.keys);
  if (workload.mix.inserts > 0 && a.operations == 0) Usage(a.workload + " needs --operations");
  if (a.workload == "fillsync") a.sync = true;
  const uint64_t bytes = a.keys * (kKeySize + a.value_size);
  if (workload.loaded && !whole && bytes <= a.cache) {
    Usage("a set of " + std::to_string(bytes) + " bytes is not larger than the cache of " + std::to_string(a.cache));
  }
  return Run(a, workload).Go();
}

}  // namespace drive
