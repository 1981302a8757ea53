// weldfs-drive-sqlite: transactions at synchronous=FULL with the system's SQLite, on the host or, with the extension
// of WeldFS loaded, on a device. One workload on one database, one JSON object on standard output; exit codes: main.cc.
// weldfs-drive-sqlite-batch is the same with an SQLite that writes a transaction's pages as one where the file system
// can (`--journal batch`): on a device, without a journal; on others it does what `--journal delete` does.
//
// load         so many rows, a thousand to a transaction
// one-row      a transaction inserts one row
// hundred-rows a transaction inserts a hundred rows
// mixed        half of the transactions read one row at random, half update one
// check        every row once
// damage       every tenth row gets a value that is wrong: so that one can see that this is found
#include <sqlite3.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <vector>

#include "arguments.h"
#include "clock.h"
#include "value.h"

namespace drive {

namespace {

constexpr uint64_t kReadBack = 1000;
constexpr uint64_t kLoadRows = 1000;
constexpr uint64_t kManyRows = 100;

// How a transaction can be undone: what `--journal` takes, and the pragmas that say so. A log whose index is not shared
// memory is one that no other connection reads.
struct Journal {
  const char* name;
  const char* mode;
  bool exclusive;
};
constexpr Journal kJournals[] = {
    {"delete", "delete", false},
    {"batch", "delete", false},
    {"wal", "wal", false},
    {"wal-exclusive", "wal", true},
};

const Journal* Known(const std::string& name) {
  const auto* found = std::find_if(std::begin(kJournals), std::end(kJournals), [&](auto& j) { return name == j.name; });
  return found != std::end(kJournals) ? found : nullptr;
}

// Whether this SQLite hands the pages of a transaction over as one.
bool HasBatch() { return sqlite3_compileoption_used("ENABLE_BATCH_ATOMIC_WRITE") != 0; }

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// A connection. What fails is in `wrong`, the first of it.
class Connection {
 public:
  ~Connection() {
    statements_.clear();
    sqlite3_close(db_);
  }

  bool Open(const Arguments& a) {
    const bool device = a.target != "host";
    if (device && !Load(a.extension)) return false;
    const std::string uri = device ? "file:" + a.target + ":" + a.db + "?vfs=weldfs" : a.db;
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
    if (sqlite3_open_v2(uri.c_str(), &db_, flags, nullptr) != SQLITE_OK) return Fail("open");
    sqlite3_busy_timeout(db_, 10000);
    const Journal* journal = Known(a.journal);
    // Before the log is opened: what the index is in is decided then.
    if (journal->exclusive && Text("pragma locking_mode = exclusive") != "exclusive") return Fail("locking_mode");
    const std::string mode = Text(std::string("pragma journal_mode = ") + journal->mode);
    if (mode != journal->mode) {
      wrong = "journal_mode is " + mode + " and not " + journal->mode;
      return false;
    }
    // Negative: KiB in place of pages.
    const std::string cache = std::to_string(std::max<uint64_t>(1, a.cache >> 10));
    return Exec("pragma synchronous = full") && Exec("pragma cache_size = -" + cache) &&
           Exec("create table if not exists t(id integer primary key, value blob not null)");
  }

  bool Exec(const std::string& sql) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK || Fail(sql);
  }

  sqlite3_stmt* Prepare(const char* sql) {
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(db_, sql, -1, &made, nullptr) != SQLITE_OK) Fail(sql);
    statements_.emplace_back(made);
    return made;
  }

  // A statement that returns no row.
  bool Done(sqlite3_stmt* statement) {
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE || Fail("step");
  }

  // The first column of the first row.
  std::string Text(const std::string& sql) {
    sqlite3_stmt* made = nullptr;
    sqlite3_prepare_v2(db_, sql.c_str(), -1, &made, nullptr);
    const Statement statement(made);
    if (sqlite3_step(made) != SQLITE_ROW) {
      Fail(sql);
      return "?";
    }
    return reinterpret_cast<const char*>(sqlite3_column_text(made, 0));
  }

  bool Fail(const std::string& what) {
    if (wrong.empty()) wrong = what + ": " + (db_ != nullptr ? sqlite3_errmsg(db_) : "no connection");
    return false;
  }

  std::string wrong;

 private:
  // The extension stays loaded when the connection that loaded it is closed.
  bool Load(const std::string& extension) {
    sqlite3* first = nullptr;
    char* said = nullptr;
    bool loaded = sqlite3_open(":memory:", &first) == SQLITE_OK &&
                  sqlite3_db_config(first, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, nullptr) == SQLITE_OK &&
                  sqlite3_load_extension(first, extension.c_str(), nullptr, &said) == SQLITE_OK;
    if (!loaded) wrong = "cannot load " + extension + ": " + (said != nullptr ? said : "?");
    sqlite3_free(said);
    sqlite3_close(first);
    return loaded;
  }

  sqlite3* db_ = nullptr;
  std::vector<Statement> statements_;
};

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : a_(arguments), values_(arguments.value_size), clock_(a_), random_(arguments.seed), next_(0) {}

  int Go();

 private:
  bool Open();
  uint64_t Rows();
  void Do(Lane& lane);
  void Count(Lane* lane, uint64_t id, bool written) const;
  bool Insert(uint64_t rows, Lane* lane);
  bool Update(uint64_t id, Lane* lane, bool damage = false);
  bool Read(uint64_t id, Lane* lane);
  void ReadBack(uint64_t before);

  const Arguments& a_;
  const Values values_;
  Clock clock_;
  Findings findings_;
  Random random_;
  std::unique_ptr<Connection> db_;
  sqlite3_stmt* insert_ = nullptr;
  sqlite3_stmt* update_ = nullptr;
  sqlite3_stmt* read_ = nullptr;
  // The number of the next row, and the version of the next value.
  uint64_t next_;
  uint64_t version_ = 1;
  std::string value_;
};

bool Run::Open() {
  db_.reset();
  db_ = std::make_unique<Connection>();
  if (!db_->Open(a_)) return false;
  insert_ = db_->Prepare("insert into t(id, value) values(?1, ?2)");
  update_ = db_->Prepare("update t set value = ?2 where id = ?1");
  read_ = db_->Prepare("select value from t where id = ?1");
  return db_->wrong.empty();
}

uint64_t Run::Rows() { return std::stoull("0" + db_->Text("select count(*) from t")); }

// A row of the workload, as large as the values are.
void Run::Count(Lane* lane, uint64_t id, bool written) const {
  if (lane == nullptr) return;
  lane->bytes += a_.value_size + sizeof(id);
  if (written) lane->written += a_.value_size + sizeof(id);
}

bool Run::Insert(uint64_t rows, Lane* lane) {
  if (rows > 1 && !db_->Exec("begin immediate")) return false;
  for (uint64_t i = 0; i < rows; i++) {
    const uint64_t id = next_++;
    values_.Make(id, version_++, &value_);
    sqlite3_bind_int64(insert_, 1, static_cast<sqlite3_int64>(id));
    sqlite3_bind_blob(insert_, 2, value_.data(), static_cast<int>(value_.size()), SQLITE_STATIC);
    if (!db_->Done(insert_)) return false;
    Count(lane, id, true);
  }
  return rows == 1 || db_->Exec("commit");
}

bool Run::Update(uint64_t id, Lane* lane, bool damage) {
  values_.Make(id, version_++, &value_);
  if (damage) value_.back() = static_cast<char>(value_.back() ^ 1);
  sqlite3_bind_int64(update_, 1, static_cast<sqlite3_int64>(id));
  sqlite3_bind_blob(update_, 2, value_.data(), static_cast<int>(value_.size()), SQLITE_STATIC);
  Count(lane, id, true);
  return db_->Done(update_);
}

bool Run::Read(uint64_t id, Lane* lane) {
  sqlite3_bind_int64(read_, 1, static_cast<sqlite3_int64>(id));
  const int code = sqlite3_step(read_);
  bool right = code == SQLITE_ROW;
  if (right) {
    uint64_t version = 0;
    const auto size = static_cast<size_t>(sqlite3_column_bytes(read_, 0));
    right = values_.Check(id, static_cast<const char*>(sqlite3_column_blob(read_, 0)), size, &version);
    Count(lane, id, false);
    findings_.Check(right, "the value of row " + std::to_string(id) + " is wrong");
  } else {
    findings_.Wrong(code == SQLITE_DONE ? "row " + std::to_string(id) + " is missing" : "a read failed");
  }
  sqlite3_reset(read_);
  return right;
}

void Run::Do(Lane& lane) {
  bool done = true;
  if (a_.workload == "load") {
    done = Insert(std::min(kLoadRows, a_.keys - next_), &lane);
  } else if (a_.workload == "one-row" || a_.workload == "hundred-rows") {
    done = Insert(a_.workload == "one-row" ? 1 : kManyRows, &lane);
  } else if (a_.workload == "mixed") {
    const uint64_t id = random_.Below(a_.keys);
    done = random_.Below(2) == 0 ? Update(id, &lane) : (Read(id, &lane), true);
  } else if (a_.workload == "check") {
    Read(lane.operations, &lane);
  } else {
    done = Update(10 * lane.operations, nullptr, true);
  }
  if (!done) findings_.Wrong(db_->wrong);
}

// By a connection that has read nothing yet.
void Run::ReadBack(uint64_t before) {
  if (!Open()) return findings_.Wrong("opened anew: " + db_->wrong);
  if (!findings_.Check(Rows() == next_, "the rows are " + std::to_string(Rows()) + " and not " + std::to_string(next_)))
    return;
  findings_.Check(db_->Text("pragma quick_check") == "ok", "quick_check finds damage");
  const bool inserted = next_ > before;
  for (uint64_t i = 0; i < std::min(kReadBack, next_) && findings_.errors() == 0; i++) {
    Read(inserted ? before + random_.Below(next_ - before) : random_.Below(next_), nullptr);
  }
}

int Run::Go() {
  if (!Open()) return Refused(db_->wrong);
  const uint64_t before = next_ = Rows();
  const bool load = a_.workload == "load";
  if (before < a_.keys && !load) return Refused("the table has only " + std::to_string(before) + " rows: load first");
  if (before > 0 && load) return Refused("the table has rows already");
  const bool damage = a_.workload == "damage";
  if (a_.warm && !load) db_->Text("select sum(length(value)) from t");
  if (a_.target != "host") clock_.Watch([this] { return db_->Text("pragma weldfs_stats"); });
  const Lane sum = clock_.Run(1, 1, [&](Lane& lane) {
    while (findings_.errors() == 0 && clock_.More(lane)) {
      const uint64_t start = Now();
      Do(lane);
      lane.latency.Add(Now() - start);
      lane.operations++;
    }
  });
  if (findings_.errors() == 0 && !damage) ReadBack(before);
  db_.reset();
  const std::string batch = HasBatch() ? ", with batch atomic writes" : "";
  return Print(a_, "SQLite " + std::string(sqlite3_libversion()) + batch, clock_, sum, findings_);
}

}  // namespace

}  // namespace drive

int main(int argc, char** argv) {
  drive::Arguments a = drive::Arguments::Parse(argc, argv);
  const std::vector<std::string> known = {"load", "one-row", "hundred-rows", "mixed", "check", "damage"};
  const bool is_known = std::find(known.begin(), known.end(), a.workload) != known.end();
  if (!is_known) drive::Usage("no workload is called " + a.workload);
  if (drive::Known(a.journal) == nullptr) drive::Usage("--journal takes delete, batch, wal or wal-exclusive");
  if (drive::HasBatch() != (a.journal == "batch")) {
    drive::Usage(std::string("this SQLite has ") + (drive::HasBatch() ? "" : "no ") + "batch atomic writes: --journal " +
                 (drive::HasBatch() ? "batch is all that it takes" : "batch is another one's"));
  }
  if (a.threads != 1) drive::Usage("a connection has one thread");
  if (a.handoff) drive::Usage("--handoff is RocksDB's");
  if (a.target != "host" && a.extension.empty()) drive::Usage("--extension is needed with a target");
  if (a.value_size < drive::Values::kLeast) drive::Usage("values are too short");
  const auto whole = [&](uint64_t step) { a.operations = (a.keys + step - 1) / step, a.seconds = 0; };
  if (a.workload == "load") whole(drive::kLoadRows);
  if (a.workload == "check") whole(1);
  if (a.workload == "damage") whole(10);
  if (a.workload == "mixed" && a.keys * a.value_size <= a.cache) {
    drive::Usage("a set of " + std::to_string(a.keys * a.value_size) + " bytes is not larger than the cache");
  }
  // Each commit is durable: that is what synchronous=FULL says.
  a.sync = a.workload != "load";
  return drive::Run(a).Go();
}
