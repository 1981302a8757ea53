// Random operations against a map, with everything opened anew in between.
#include <map>
#include <random>

#include "leveldb/db.h"
#include "leveldb/write_batch.h"
#include "world.h"

using leveldb::DB;

using RandomTest = World;

TEST_F(RandomTest, IsAMap) {
  const char* said = std::getenv("WELDFS_LEVELDB_STEPS");
  const int steps = said == nullptr ? 60000 : std::atoi(said);
  leveldb::Options options;
  options.env = env_.get();
  options.create_if_missing = true;
  options.write_buffer_size = 64 << 10;
  options.max_file_size = 1 << 20;
  std::mt19937 random(42);
  std::map<std::string, std::string> expected;
  std::unique_ptr<DB> db;
  auto open = [&] {
    db.reset();
    options.reuse_logs = random() % 2 == 0;
    DB* opened = nullptr;
    leveldb::Status s = DB::Open(options, Path("db"), &opened);
    db.reset(opened);
    return s;
  };
  auto key = [&] { return "k" + std::to_string(random() % 3000); };
  auto value = [&] {
    const size_t size = random() % 50 == 0 ? random() % 100000 : random() % 300;
    return std::string(size, static_cast<char>('a' + random() % 26));
  };
  ASSERT_OK(open());
  for (int step = 0; step < steps; step++) {
    leveldb::WriteOptions write;
    write.sync = random() % 50 == 0;
    const std::string k = key();
    switch (random() % 1000) {
      case 0:
        ASSERT_OK(open());
        break;
      case 1:
        if (random() % 10 == 0) db->CompactRange(nullptr, nullptr);
        break;
      case 2: {
        std::unique_ptr<leveldb::Iterator> it(db->NewIterator(leveldb::ReadOptions()));
        auto want = expected.begin();
        for (it->SeekToFirst(); it->Valid(); it->Next(), ++want) {
          ASSERT_TRUE(want != expected.end() && it->key().ToString() == want->first);
          ASSERT_TRUE(it->value().ToString() == want->second);
        }
        ASSERT_OK(it->status());
        ASSERT_TRUE(want == expected.end());
        break;
      }
      case 3: {
        leveldb::WriteBatch batch;
        for (int i = 0; i < 40; i++) {
          const std::string one = key();
          if (random() % 3 == 0) {
            batch.Delete(one);
            expected.erase(one);
          } else {
            batch.Put(one, expected[one] = value());
          }
        }
        ASSERT_OK(db->Write(write, &batch));
        break;
      }
      default:
        if (random() % 4 == 0) {
          std::string got;
          const leveldb::Status s = db->Get(leveldb::ReadOptions(), k, &got);
          const auto want = expected.find(k);
          ASSERT_TRUE(want == expected.end() ? s.IsNotFound() : s.ok() && got == want->second) << s.ToString();
        } else if (random() % 4 == 0) {
          ASSERT_OK(db->Delete(write, k));
          expected.erase(k);
        } else {
          ASSERT_OK(db->Put(write, k, expected[k] = value()));
        }
    }
  }
}
