// The database as a program uses it; and random operations beside a file of what is expected.

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "check.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/backup_engine.h"
#include "rocksdb/utilities/checkpoint.h"

namespace {

constexpr uint64_t kRows = 20000;

uint64_t Count(rocksdb::DB* db, const rocksdb::ReadOptions& options) {
  uint64_t rows = 0;
  std::unique_ptr<rocksdb::Iterator> all(db->NewIterator(options));
  for (all->SeekToFirst(); all->Valid(); all->Next()) {
    CHECK(all->key() == Key(rows));
    CHECK(all->value() == Value(rows, 1));
    ++rows;
  }
  OK(all->status());
  return rows;
}

void MultiGetAll(rocksdb::DB* db, bool async) {
  rocksdb::ReadOptions options;
  options.async_io = async;
  std::vector<std::string> names;
  for (uint64_t row = 0; row < kRows; row += 97) {
    names.push_back(Key(row));
  }
  std::vector<rocksdb::Slice> keys(names.begin(), names.end());
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  db->MultiGet(options, db->DefaultColumnFamily(), keys.size(), keys.data(), values.data(), statuses.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    OK(statuses[i]);
    CHECK(values[i] == Value(i * 97, 1));
  }
}

// Every commit of one row after the first is one command, and its Sync finds nothing left to do.
void SyncedCommits(const Rig& rig, rocksdb::DB* db) {
  rocksdb::WriteOptions synced;
  synced.sync = true;
  OK(db->Put(synced, "sync", "first"));
  OK(db->Put(synced, "sync", "second"));
  const auto before = rig.Counters();
  for (int i = 0; i < 100; ++i) {
    OK(db->Put(synced, "sync", "more"));
  }
  const auto after = rig.Counters();
  CHECK(after.durable_appends - before.durable_appends == 100);
  CHECK(after.syncs == before.syncs);
  CHECK(after.syncs_done_before - before.syncs_done_before == 100);
  OK(db->Delete(synced, "sync"));
}

}  // namespace

int TestEngine(const std::string& target) {
  Rig rig(target);
  rocksdb::Options options = rig.Options();
  options.recycle_log_file_num = 2;
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  auto db = rig.Open("/db", options);
  SyncedCommits(rig, db.get());
  for (uint64_t row = 0; row < kRows; ++row) {
    OK(db->Put(rocksdb::WriteOptions(), Key(row), Value(row, 1)));
  }
  OK(db->Flush(rocksdb::FlushOptions()));
  OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  rocksdb::ReadOptions reads;
  CHECK(Count(db.get(), reads) == kRows);
  const auto before = rig.Counters();
  MultiGetAll(db.get(), false);
  CHECK(rig.Counters().multi_reads > before.multi_reads);
  MultiGetAll(db.get(), true);
  reads.async_io = true;
  reads.readahead_size = 64 << 10;
  CHECK(Count(db.get(), reads) == kRows);
  CHECK(rig.Counters().async_reads > before.async_reads);
  // The manifest and CURRENT, the identity, and the options that nothing read before their rename.
  CHECK(rig.Counters().replacements >= 2);

  // A second database of the same device, made of links; and a backup, made of copies.
  rocksdb::Checkpoint* checkpoint = nullptr;
  OK(rocksdb::Checkpoint::Create(db.get(), &checkpoint));
  OK(checkpoint->CreateCheckpoint("/checkpoint"));
  delete checkpoint;
  CHECK(Count(rig.Open("/checkpoint").get(), rocksdb::ReadOptions()) == kRows);
  rocksdb::BackupEngine* backups = nullptr;
  rocksdb::BackupEngineOptions where("/backup", rig.env.get());
  OK(rocksdb::BackupEngine::Open(rig.env.get(), where, &backups));
  OK(backups->CreateNewBackup(db.get(), true));
  OK(backups->VerifyBackup(1, true));
  db.reset();
  OK(backups->RestoreDBFromLatestBackup("/restored", "/restored"));
  delete backups;
  CHECK(Count(rig.Open("/restored").get(), rocksdb::ReadOptions()) == kRows);

  db = rig.Open("/db", options);
  CHECK(Count(db.get(), rocksdb::ReadOptions()) == kRows);
  // One process has it already: this one.
  rocksdb::DB* second = nullptr;
  CHECK(rocksdb::DB::Open(options, "/db", &second).IsIOError());
  OK(db->DeleteRange(rocksdb::WriteOptions(), db->DefaultColumnFamily(), Key(0), Key(kRows)));
  OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  CHECK(Count(db.get(), rocksdb::ReadOptions()) == 0);
  db.reset();
  OK(rocksdb::DestroyDB("/db", options));
  CHECK(rig.fs->FileExists("/db/CURRENT", rocksdb::IOOptions(), nullptr).IsNotFound());
  return 0;
}

// The state is a file of the host with two numbers for each row: the version that was acknowledged, and the one that
// was begun after it. 0 is a row that is not there. A process that is killed leaves one of the two; the next run checks
// all rows before it goes on.
int TestRandom(const std::string& target, const std::string& state, uint64_t seed, uint64_t operations) {
  constexpr uint64_t kKeys = 2000;
  struct Row {
    uint64_t acknowledged;
    uint64_t begun;
  };
  std::fstream file(state, std::ios::in | std::ios::out | std::ios::binary);
  if (!file.is_open()) {
    std::ofstream(state, std::ios::binary).write(std::string(kKeys * sizeof(Row), '\0').data(), kKeys * sizeof(Row));
    file.open(state, std::ios::in | std::ios::out | std::ios::binary);
  }
  std::vector<Row> rows(kKeys);
  CHECK(file.read(reinterpret_cast<char*>(rows.data()), static_cast<std::streamsize>(kKeys * sizeof(Row))));
  auto note = [&](uint64_t row) {
    file.seekp(static_cast<std::streamoff>(row * sizeof(Row)));
    CHECK(file.write(reinterpret_cast<const char*>(&rows[row]), sizeof(Row)).flush());
  };
  std::mt19937_64 random(seed);
  Rig rig(target);
  rocksdb::Options options = rig.Options();
  for (const auto type : {rocksdb::FileType::kWalFile, rocksdb::FileType::kTableFile, rocksdb::FileType::kDescriptorFile}) {
    options.checksum_handoff_file_types.Add(type);
  }
  options.recycle_log_file_num = random() % 3;
  options.manual_wal_flush = false;
  auto db = rig.Open("/random", options);
  auto verify = [&] {
    std::string value;
    for (uint64_t row = 0; row < kKeys; ++row) {
      const rocksdb::Status status = db->Get(rocksdb::ReadOptions(), Key(row), &value);
      auto is = [&](uint64_t version) {
        return version == 0 ? status.IsNotFound() : status.ok() && value == Value(row, version, 50 + version % 3000);
      };
      if (!is(rows[row].acknowledged) && !is(rows[row].begun)) {
        std::fprintf(stderr, "row %llu: %s, acknowledged %llu, begun %llu\n", static_cast<unsigned long long>(row),
                     status.ok() ? value.substr(0, 30).c_str() : status.ToString().c_str(),
                     static_cast<unsigned long long>(rows[row].acknowledged),
                     static_cast<unsigned long long>(rows[row].begun));
        std::exit(1);
      }
      rows[row].acknowledged = rows[row].begun = is(rows[row].begun) ? rows[row].begun : rows[row].acknowledged;
      note(row);
    }
  };
  verify();
  std::puts("verified");
  std::fflush(stdout);
  rocksdb::WriteOptions synced;
  synced.sync = true;
  for (uint64_t i = 0; i < operations; ++i) {
    const uint64_t what = random() % 1000;
    if (what < 2) {
      OK(db->Flush(rocksdb::FlushOptions()));
    } else if (what < 3) {
      OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
    } else if (what < 4) {
      db.reset();
      db = rig.Open("/random", options);
      verify();
    } else {
      // Some rows, put or removed together.
      rocksdb::WriteBatch batch;
      std::vector<uint64_t> touched;
      for (uint64_t n = 1 + random() % 5; n > 0; --n) {
        const uint64_t row = random() % kKeys;
        if (std::find(touched.begin(), touched.end(), row) != touched.end()) {
          continue;
        }
        touched.push_back(row);
        rows[row].begun = random() % 5 == 0 ? 0 : random() >> 1 | 1;
        if (rows[row].begun == 0) {
          batch.Delete(Key(row));
        } else {
          batch.Put(Key(row), Value(row, rows[row].begun, 50 + rows[row].begun % 3000));
        }
        note(row);
      }
      OK(db->Write(synced, &batch));
      for (const uint64_t row : touched) {
        rows[row].acknowledged = rows[row].begun;
        note(row);
      }
    }
  }
  verify();
  const auto counters = rig.Counters();
  CHECK(operations < 100 || counters.handoffs > 0);
  CHECK(counters.handoff_mismatches == 0);
  return 0;
}
