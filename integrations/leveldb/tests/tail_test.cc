// What is held back, and what not.
#include "tail.h"

#include <gtest/gtest.h>

#include <random>

using weldfs::Fragments;
using weldfs::Habit;
using weldfs::Kind;
using weldfs::KindOf;

TEST(Tail, KindsAreLevelDBsNames) {
  EXPECT_EQ(KindOf("disk.img:/db/000012.log"), Kind::kLog);
  EXPECT_EQ(KindOf("/db/000012.ldb"), Kind::kTable);
  EXPECT_EQ(KindOf("000012.sst"), Kind::kTable);
  EXPECT_EQ(KindOf("/db/000012.dbtmp"), Kind::kTemporary);
  EXPECT_EQ(KindOf("/db/MANIFEST-000007"), Kind::kManifest);
  for (const char* other :
       {"/db/LOG", "/db/x.log", "/000012.log/x", "/db/.log", "/db/MANIFEST-", "/db/CURRENT", "", "/"}) {
    EXPECT_EQ(KindOf(other), Kind::kOther) << other;
  }
}

// A fragment of a log as LevelDB lays it out; the checksum is none that is looked at.
static std::string Fragment(int type, size_t size) {
  std::string out(7, 'c');
  out[4] = static_cast<char>(size & 255);
  out[5] = static_cast<char>(size >> 8);
  out[6] = static_cast<char>(type);
  return out + std::string(size, 'p');
}

TEST(Tail, ARecordInFragmentsIsWholeWithItsLast) {
  constexpr size_t kBlock = 32768;
  struct Step {
    std::string bytes;
    bool within;
  };
  const Step steps[] = {
      {Fragment(1, 10), false},
      {Fragment(2, kBlock - 17 - 7), true},
      {Fragment(3, kBlock - 7), true},
      {Fragment(4, 100), false},
      {Fragment(1, kBlock - 107 - 7 - 3), false},
      {std::string(3, 0) + Fragment(2, kBlock - 7), true},
      {Fragment(4, 0), false},
      {Fragment(1, 0), false},
  };
  for (unsigned seed = 0; seed < 50; seed++) {
    std::mt19937 random(seed);
    Fragments fragments(0);
    for (const Step& step : steps) {
      size_t at = 0;
      while (at < step.bytes.size()) {
        const size_t piece = std::min<size_t>(step.bytes.size() - at, seed == 0 ? 7 : 1 + random() % 20000);
        fragments.Follow(step.bytes.data() + at, piece);
        at += piece;
        // Within a head or a fragment it is not said to be between two of a record.
        if (at < step.bytes.size() && at > 3) {
          EXPECT_FALSE(fragments.within_record());
        }
      }
      EXPECT_EQ(fragments.within_record(), step.within);
    }
  }
}

TEST(Tail, ALogThatIsAppendedToGoesOnInItsBlock) {
  Fragments fragments(32768 * 3 + 32768 - 5);
  const std::string rest = std::string(5, 0) + Fragment(2, 32768 - 7);
  fragments.Follow(rest.data(), rest.size());
  EXPECT_TRUE(fragments.within_record());
}

TEST(Tail, SyncsAreExpectedAfterThree) {
  Habit habit;
  for (int i = 0; i < 3; i++) {
    EXPECT_FALSE(habit.expects_sync());
    habit.Flushed();
    habit.Synced();
    habit.Synced();
  }
  EXPECT_TRUE(habit.expects_sync());
  habit.Flushed();
  EXPECT_TRUE(habit.expects_sync()) << "this flush may be one that a sync follows";
  habit.Flushed();
  EXPECT_FALSE(habit.expects_sync()) << "none did";
}
