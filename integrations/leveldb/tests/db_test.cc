// A database on the Env: what LevelDB's interface does, on a device.
#include <map>

#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"
#include "world.h"

using leveldb::DB;
using leveldb::Options;
using leveldb::ReadOptions;
using leveldb::Status;
using leveldb::WriteOptions;

class DBTest : public World {
 protected:
  void SetUp() override {
    World::SetUp();
    if (HasFatalFailure()) return;
    options_.env = env_.get();
    options_.create_if_missing = true;
    options_.write_buffer_size = 256 << 10;
    options_.max_file_size = 1 << 20;
  }

  void TearDown() override { db_.reset(); }

  Status Open(const std::string& name = "db") {
    db_.reset();
    DB* db = nullptr;
    Status s = DB::Open(options_, Path(name), &db);
    db_.reset(db);
    return s;
  }

  std::string Get(const std::string& key, const leveldb::Snapshot* snapshot = nullptr) {
    ReadOptions options;
    options.verify_checksums = true;
    options.snapshot = snapshot;
    std::string value;
    Status s = db_->Get(options, key, &value);
    return s.ok() ? value : s.IsNotFound() ? "NOT FOUND" : s.ToString();
  }

  Status Put(const std::string& key, const std::string& value, bool sync = false) {
    WriteOptions options;
    options.sync = sync;
    return db_->Put(options, key, value);
  }

  static std::string Key(int i) {
    char key[16];
    std::snprintf(key, sizeof(key), "key%06d", i);
    return key;
  }

  static std::string Value(int i) { return std::string(i % 700, static_cast<char>('a' + i % 26)) + std::to_string(i); }

  int Count() {
    std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(ReadOptions()));
    int count = 0;
    for (it->SeekToFirst(); it->Valid(); it->Next()) count++;
    EXPECT_TRUE(it->status().ok()) << it->status().ToString();
    return count;
  }

  Options options_;
  std::unique_ptr<DB> db_;
};

TEST_F(DBTest, PutsAreThereAfterOpeningAgain) {
  ASSERT_OK(Open());
  for (int i = 0; i < 5000; i++) ASSERT_OK(Put(Key(i), Value(i), i % 100 == 0));
  ASSERT_OK(Put("large", std::string(3 << 20, 'L'), true));
  for (int i = 0; i < 5000; i += 3) ASSERT_OK(db_->Delete(WriteOptions(), Key(i)));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 5000; i += 7) EXPECT_EQ(Get(Key(i)), i % 3 == 0 ? "NOT FOUND" : Value(i));
    EXPECT_EQ(Get("large"), std::string(3 << 20, 'L'));
    EXPECT_EQ(Count(), 5000 - 1667 + 1);
    options_.reuse_logs = round == 1;  // then logs and the manifest are appended to
    ASSERT_OK(Open());
    ASSERT_OK(Put("round", std::to_string(round)));
    ASSERT_OK(db_->Delete(WriteOptions(), "round"));
  }
}

TEST_F(DBTest, IteratesBothWaysAndSeeks) {
  ASSERT_OK(Open());
  for (int i = 0; i < 2000; i += 2) ASSERT_OK(Put(Key(i), Value(i)));
  db_->CompactRange(nullptr, nullptr);
  std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(ReadOptions()));
  int i = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next(), i += 2) ASSERT_EQ(it->key().ToString(), Key(i));
  EXPECT_EQ(i, 2000);
  for (it->SeekToLast(); it->Valid(); it->Prev()) {
    i -= 2;
    ASSERT_EQ(it->value().ToString(), Value(i));
  }
  EXPECT_EQ(i, 0);
  it->Seek(Key(1001));
  ASSERT_TRUE(it->Valid());
  EXPECT_EQ(it->key().ToString(), Key(1002));
}

TEST_F(DBTest, SnapshotsSeeWhatWas) {
  ASSERT_OK(Open());
  ASSERT_OK(Put("k", "one"));
  const leveldb::Snapshot* then = db_->GetSnapshot();
  ASSERT_OK(Put("k", "two"));
  ASSERT_OK(db_->Delete(WriteOptions(), "k"));
  for (int i = 0; i < 3000; i++) ASSERT_OK(Put(Key(i), Value(i)));
  db_->CompactRange(nullptr, nullptr);
  EXPECT_EQ(Get("k", then), "one");
  EXPECT_EQ(Get("k"), "NOT FOUND");
  db_->ReleaseSnapshot(then);
}

TEST_F(DBTest, CompactsAndRemovesWhatIsObsolete) {
  ASSERT_OK(Open());
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 3000; i++) ASSERT_OK(Put(Key(i), Value(i + round)));
  }
  db_->CompactRange(nullptr, nullptr);
  for (int i = 0; i < 3000; i++) ASSERT_EQ(Get(Key(i)), Value(i + 4));
  std::vector<std::string> names;
  ASSERT_OK(env_->GetChildren(Path("db"), &names));
  int logs = 0, manifests = 0;
  for (const std::string& name : names) {
    logs += name.find(".log") != std::string::npos;
    manifests += name.compare(0, 8, "MANIFEST") == 0;
    EXPECT_EQ(name.find(".dbtmp"), std::string::npos);
  }
  EXPECT_EQ(manifests, 1);
  EXPECT_LE(logs, 2);
  for (int i = 0; i < 3000; i++) ASSERT_OK(db_->Delete(WriteOptions(), Key(i)));
  db_->CompactRange(nullptr, nullptr);
  EXPECT_EQ(Count(), 0);
}

TEST_F(DBTest, BatchesFiltersAndCaches) {
  std::unique_ptr<const leveldb::FilterPolicy> filter(leveldb::NewBloomFilterPolicy(10));
  std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(64 << 10));
  options_.filter_policy = filter.get();
  options_.block_cache = cache.get();
  options_.compression = leveldb::kNoCompression;
  ASSERT_OK(Open());
  for (int i = 0; i < 200; i++) {
    leveldb::WriteBatch batch;
    for (int j = 0; j < 50; j++) batch.Put(Key(i * 50 + j), Value(j));
    batch.Delete(Key(i * 50));
    WriteOptions options;
    options.sync = i % 20 == 0;
    ASSERT_OK(db_->Write(options, &batch));
  }
  db_->CompactRange(nullptr, nullptr);
  ASSERT_OK(Open());
  EXPECT_EQ(Count(), 200 * 49);
  for (int i = 0; i < 10000; i += 11) EXPECT_EQ(Get(Key(i)), i % 50 == 0 ? "NOT FOUND" : Value(i % 50));
  EXPECT_EQ(Get("key999999"), "NOT FOUND");
  db_.reset();
}

TEST_F(DBTest, RepairsWithoutManifest) {
  ASSERT_OK(Open());
  for (int i = 0; i < 4000; i++) ASSERT_OK(Put(Key(i), Value(i)));
  db_.reset();
  std::vector<std::string> names;
  ASSERT_OK(env_->GetChildren(Path("db"), &names));
  for (const std::string& name : names) {
    if (name.compare(0, 8, "MANIFEST") == 0) ASSERT_OK(env_->RemoveFile(Path("db/" + name)));
  }
  EXPECT_FALSE(Open().ok());
  ASSERT_OK(leveldb::RepairDB(Path("db"), options_));
  ASSERT_OK(Open());
  EXPECT_EQ(Count(), 4000);
}

TEST_F(DBTest, IsDestroyedWithAllItsFiles) {
  ASSERT_OK(Open());
  ASSERT_OK(Put("k", "v", true));
  EXPECT_TRUE(leveldb::DestroyDB(Path("db"), options_).IsIOError()) << "it is open";
  EXPECT_EQ(Get("k"), "v");
  db_.reset();
  ASSERT_OK(leveldb::DestroyDB(Path("db"), options_));
  EXPECT_FALSE(env_->FileExists(Path("db")));
}

TEST_F(DBTest, OneOpenAtATime) {
  ASSERT_OK(Open());
  DB* second = nullptr;
  EXPECT_TRUE(DB::Open(options_, Path("db"), &second).IsIOError());
  db_.reset();
  ASSERT_OK(Open());
}

TEST_F(DBTest, ManyDatabasesOnOneTarget) {
  std::vector<std::unique_ptr<DB>> all;
  for (int i = 0; i < 5; i++) {
    DB* db;
    ASSERT_OK(DB::Open(options_, Path("db" + std::to_string(i)), &db));
    all.emplace_back(db);
  }
  for (int k = 0; k < 2000; k++) {
    for (int i = 0; i < 5; i++) ASSERT_OK(all[i]->Put(WriteOptions(), Key(k), Value(k + i)));
  }
  for (int i = 0; i < 5; i++) {
    std::string value;
    ASSERT_OK(all[i]->Get(ReadOptions(), Key(1234), &value));
    EXPECT_EQ(value, Value(1234 + i));
  }
}

TEST_F(DBTest, DamageIsFound) {
  options_.compression = leveldb::kNoCompression;
  ASSERT_OK(Open());
  for (int i = 0; i < 1000; i++) ASSERT_OK(Put(Key(i), Value(i)));
  db_->CompactRange(nullptr, nullptr);
  db_.reset();
  std::vector<std::string> names;
  ASSERT_OK(env_->GetChildren(Path("db"), &names));
  int damaged = 0;
  for (const std::string& name : names) {
    if (name.find(".ldb") == std::string::npos) continue;
    std::string content = Content(Path("db/" + name));
    content[content.size() / 3] ^= 1;
    ASSERT_OK(leveldb::WriteStringToFile(env_.get(), content, Path("db/" + name)));
    damaged++;
  }
  ASSERT_GT(damaged, 0);
  options_.paranoid_checks = true;
  ASSERT_OK(Open());
  int corrupt = 0;
  for (int i = 0; i < 1000; i++) {
    const std::string got = Get(Key(i));
    if (got != Value(i)) {
      EXPECT_EQ(got.compare(0, 10, "Corruption"), 0) << got;
      corrupt++;
    }
  }
  EXPECT_GT(corrupt, 0);
}
