// The Env by itself: every method, as LevelDB relies on it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <random>
#include <set>
#include <thread>

#include "world.h"

using leveldb::Slice;
using leveldb::Status;

using EnvTest = World;

// Writes `content` in pieces of random sizes, with flushes and syncs in between.
static void WritePieces(leveldb::WritableFile* file, const std::string& content, std::mt19937* random) {
  size_t at = 0;
  while (at < content.size()) {
    const size_t piece = std::min<size_t>(content.size() - at, (*random)() % ((*random)() % 8 == 0 ? 300000 : 3000));
    ASSERT_OK(file->Append(Slice(content.data() + at, piece)));
    at += piece;
    if ((*random)() % 10 == 0) ASSERT_OK(file->Flush());
    if ((*random)() % 100 == 0) ASSERT_OK(file->Sync());
  }
}

// Every kind of name is held back in a way of its own; what is read after the close must be the same.
TEST_F(EnvTest, ReadsWhatWasWrittenWhateverTheName) {
  std::mt19937 random(301);
  for (const char* name : {"000003.log", "000004.ldb", "MANIFEST-000005", "000006.dbtmp", "anything"}) {
    for (const size_t size : {0, 1, 40000, 5 << 20}) {
      std::string content(size, 0);
      for (char& c : content) c = static_cast<char>(random());
      leveldb::WritableFile* file;
      ASSERT_OK(env_->NewWritableFile(Path(name), &file));
      WritePieces(file, content, &random);
      ASSERT_OK(file->Close());
      delete file;
      ASSERT_EQ(Size(Path(name)), size);

      leveldb::SequentialFile* sequential;
      ASSERT_OK(env_->NewSequentialFile(Path(name), &sequential));
      std::string read, scratch(200000, 0);
      while (true) {
        const size_t skip = std::min<size_t>(random() % 1000, content.size() - read.size());
        read += content.substr(read.size(), skip);
        ASSERT_OK(sequential->Skip(skip));
        Slice piece;
        ASSERT_OK(sequential->Read(1 + random() % scratch.size(), &piece, &scratch[0]));
        if (piece.empty()) break;
        read.append(piece.data(), piece.size());
      }
      delete sequential;
      ASSERT_TRUE(read == content) << name << " of " << size;

      leveldb::RandomAccessFile* access;
      ASSERT_OK(env_->NewRandomAccessFile(Path(name), &access));
      for (int i = 0; i < 50; i++) {
        const size_t at = random() % (size + 10), n = random() % scratch.size();
        Slice piece;
        ASSERT_OK(access->Read(at, n, &piece, &scratch[0]));
        const std::string expected = at < size ? content.substr(at, n) : "";
        ASSERT_TRUE(piece.ToString() == expected) << name << " at " << at;
      }
      delete access;
    }
  }
}

TEST_F(EnvTest, WhatIsFlushedIsThereForOthers) {
  leveldb::WritableFile* file;
  ASSERT_OK(env_->NewWritableFile(Path("plain"), &file));
  ASSERT_OK(file->Append("one"));
  ASSERT_OK(file->Flush());
  EXPECT_EQ(Content(Path("plain")), "one");
  ASSERT_OK(file->Append("two"));
  ASSERT_OK(file->Sync());
  EXPECT_EQ(Content(Path("plain")), "onetwo");
  ASSERT_OK(file->Append("three"));
  delete file;  // closes
  EXPECT_EQ(Content(Path("plain")), "onetwothree");
}

TEST_F(EnvTest, ManifestsAndTablesAreThereWhenSynced) {
  for (const char* name : {"MANIFEST-000001", "000001.ldb", "000001.dbtmp"}) {
    leveldb::WritableFile* file;
    ASSERT_OK(env_->NewWritableFile(Path(name), &file));
    ASSERT_OK(file->Append("bytes"));
    ASSERT_OK(file->Flush());
    ASSERT_OK(file->Sync());
    EXPECT_EQ(Content(Path(name)), "bytes") << name;
    ASSERT_OK(file->Append("more"));
    ASSERT_OK(file->Sync());
    ASSERT_OK(file->Sync());
    EXPECT_EQ(Content(Path(name)), "bytesmore") << name;
    ASSERT_OK(file->Close());
    EXPECT_FALSE(file->Append("late").ok());
    delete file;
    EXPECT_EQ(Content(Path(name)), "bytesmore") << name;
  }
}

TEST_F(EnvTest, OpeningAgainTruncatesAndAppends) {
  ASSERT_OK(leveldb::WriteStringToFile(env_.get(), "a long first content", Path("f")));
  ASSERT_OK(leveldb::WriteStringToFile(env_.get(), "short", Path("f")));
  EXPECT_EQ(Content(Path("f")), "short");
  for (int i = 0; i < 3; i++) {
    leveldb::WritableFile* file;
    ASSERT_OK(env_->NewAppendableFile(Path(i == 0 ? "f" : "new"), &file));
    ASSERT_OK(file->Append(" and more"));
    delete file;
  }
  EXPECT_EQ(Content(Path("f")), "short and more");
  EXPECT_EQ(Content(Path("new")), " and more and more");
}

TEST_F(EnvTest, WhatIsNotThereIsNotFound) {
  leveldb::SequentialFile* sequential = nullptr;
  leveldb::RandomAccessFile* access = nullptr;
  leveldb::WritableFile* writable = nullptr;
  uint64_t size = 1;
  std::vector<std::string> names{"old"};
  EXPECT_TRUE(env_->NewSequentialFile(Path("none"), &sequential).IsNotFound());
  EXPECT_TRUE(env_->NewRandomAccessFile(Path("none"), &access).IsNotFound());
  EXPECT_TRUE(env_->NewWritableFile(Path("none/f"), &writable).IsNotFound());
  EXPECT_TRUE(env_->NewAppendableFile(Path("none/f"), &writable).IsNotFound());
  EXPECT_TRUE(sequential == nullptr && access == nullptr && writable == nullptr);
  EXPECT_TRUE(env_->GetFileSize(Path("none"), &size).IsNotFound());
  EXPECT_EQ(size, 0u);
  EXPECT_TRUE(env_->GetChildren(Path("none"), &names).IsNotFound());
  EXPECT_TRUE(names.empty());
  EXPECT_TRUE(env_->RemoveFile(Path("none")).IsNotFound());
  EXPECT_TRUE(env_->RemoveDir(Path("none")).IsNotFound());
  EXPECT_TRUE(env_->RenameFile(Path("none"), Path("new")).IsNotFound());
  EXPECT_FALSE(env_->FileExists(Path("none")));
  // A temporary file is made by its sync: the error is one of that.
  ASSERT_OK(env_->NewWritableFile(Path("none/1.dbtmp"), &writable));
  ASSERT_OK(writable->Append("x"));
  EXPECT_TRUE(writable->Sync().IsNotFound());
  EXPECT_FALSE(writable->Close().ok());
  delete writable;
}

TEST_F(EnvTest, NamesAndDirectories) {
  ASSERT_OK(env_->CreateDir(Path("d")));
  EXPECT_TRUE(env_->CreateDir(Path("d")).IsIOError());
  std::set<std::string> expected;
  for (int i = 0; i < 300; i++) {
    const std::string name = "file-" + std::to_string(i);
    ASSERT_OK(leveldb::WriteStringToFile(env_.get(), name, Path("d/" + name)));
    expected.insert(name);
  }
  std::vector<std::string> names;
  ASSERT_OK(env_->GetChildren(Path("d"), &names));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
  EXPECT_EQ(names.size(), expected.size());

  EXPECT_TRUE(env_->RemoveDir(Path("d")).IsIOError()) << "it is not empty";
  EXPECT_TRUE(env_->RemoveFile(Path("d")).IsIOError()) << "it is a directory";
  EXPECT_TRUE(env_->RemoveDir(Path("d/file-0")).IsIOError()) << "it is a file";
  ASSERT_OK(env_->RenameFile(Path("d/file-0"), Path("d/file-1")));
  EXPECT_EQ(Content(Path("d/file-1")), "file-0");
  EXPECT_FALSE(env_->FileExists(Path("d/file-0")));
  for (const std::string& name : expected) {
    if (name != "file-0") ASSERT_OK(env_->RemoveFile(Path("d/" + name)));
  }
  ASSERT_OK(env_->RemoveDir(Path("d")));
  EXPECT_FALSE(env_->FileExists(Path("d")));
}

TEST_F(EnvTest, AnOpenFileSurvivesItsRemoval) {
  ASSERT_OK(leveldb::WriteStringToFile(env_.get(), "still", Path("f")));
  leveldb::RandomAccessFile* file;
  ASSERT_OK(env_->NewRandomAccessFile(Path("f"), &file));
  ASSERT_OK(env_->RemoveFile(Path("f")));
  char scratch[8];
  Slice read;
  ASSERT_OK(file->Read(0, 8, &read, scratch));
  EXPECT_EQ(read.ToString(), "still");
  delete file;
}

TEST_F(EnvTest, ALockIsOneOpens) {
  leveldb::FileLock *first, *second;
  ASSERT_OK(env_->LockFile(Path("LOCK"), &first));
  EXPECT_TRUE(env_->LockFile(Path("LOCK"), &second).IsIOError());
  EXPECT_EQ(second, nullptr);
  {
    // Another Env of this process, and so another attachment.
    leveldb::Env* other;
    ASSERT_OK(weldfs::NewLevelDBEnv(target_, &other));
    EXPECT_TRUE(other->LockFile(Path("LOCK"), &second).IsIOError());
    delete other;
  }
  ASSERT_OK(env_->UnlockFile(first));
  ASSERT_OK(env_->LockFile(Path("LOCK"), &second));
  ASSERT_OK(env_->UnlockFile(second));
}

TEST_F(EnvTest, TargetsStandInNames) {
  leveldb::Env* made;
  ASSERT_OK(weldfs::NewLevelDBEnv("", &made));
  std::unique_ptr<leveldb::Env> env(made);
  const std::string path = target_ + ":" + Path("f");
  ASSERT_OK(leveldb::WriteStringToFile(env.get(), "named", path));
  EXPECT_EQ(Content(Path("f")), "named");
  unsetenv("WELDFS_LEVELDB_TARGET");
  EXPECT_TRUE(env->CreateDir("/no/target").IsInvalidArgument());
  setenv("WELDFS_LEVELDB_TARGET", target_.c_str(), 1);
  EXPECT_TRUE(env->FileExists(Path("f")));
  unsetenv("WELDFS_LEVELDB_TARGET");
  EXPECT_TRUE(env->RenameFile(path, target_ + ".none:/f").IsNotFound());
}

TEST_F(EnvTest, WrongTargetsAreErrors) {
  leveldb::Env* env = env_.get();
  EXPECT_TRUE(weldfs::NewLevelDBEnv("/no/such/image", &env).IsNotFound());
  EXPECT_EQ(env, nullptr);
  for (const char* target : {"/", "/dev/null", "/proc/self/exe"}) {
    const Status s = weldfs::NewLevelDBEnv(target, &env);
    EXPECT_TRUE(s.IsIOError()) << target << ": " << s.ToString();
    EXPECT_EQ(env, nullptr);
  }
}

// leveldb::Log is not among what a shared LevelDB exports.
static void Say(leveldb::Logger* logger, const char* format, ...) {
  std::va_list ap;
  va_start(ap, format);
  logger->Logv(format, ap);
  va_end(ap);
}

TEST_F(EnvTest, LinesAreLogged) {
  leveldb::Logger* logger;
  ASSERT_OK(env_->NewLogger(Path("LOG"), &logger));
  Say(logger, "a number: %d", 42);
  const std::string longer(10000, 'x');
  Say(logger, "%s\n", longer.c_str());
  delete logger;
  const std::string log = Content(Path("LOG"));
  EXPECT_NE(log.find(" a number: 42\n"), std::string::npos) << log.substr(0, 100);
  EXPECT_NE(log.find(" " + longer + "\n"), std::string::npos);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
}

TEST_F(EnvTest, ThreadsAndTimeAreTheHosts) {
  std::atomic<int> ran{0};
  auto count = [](void* arg) { static_cast<std::atomic<int>*>(arg)->fetch_add(1); };
  for (int i = 0; i < 10; i++) env_->Schedule(count, &ran);
  for (int i = 0; i < 3; i++) env_->StartThread(count, &ran);
  const uint64_t start = env_->NowMicros();
  while (ran < 13 && env_->NowMicros() < start + 30'000'000) env_->SleepForMicroseconds(1000);
  EXPECT_EQ(ran, 13);
  EXPECT_GE(env_->NowMicros(), start);
}

TEST_F(EnvTest, ATestDirectoryIsMade) {
  std::string path;
  ASSERT_OK(env_->GetTestDirectory(&path));
  ASSERT_OK(env_->GetTestDirectory(&path));
  EXPECT_TRUE(env_->FileExists(path));
}

TEST_F(EnvTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> bad{0};
  for (int t = 0; t < 8; t++) {
    threads.emplace_back([this, t, &bad] {
      for (int i = 0; i < 50; i++) {
        const std::string name = Path("t" + std::to_string(t)), content(i * 100, 'a' + t);
        if (!leveldb::WriteStringToFile(env_.get(), content, name).ok() || Content(name) != content) bad++;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
}

// A child has the database of its parent in its memory; it must not touch its files.
TEST_F(EnvTest, AChildIsRefused) {
  leveldb::WritableFile* file;
  ASSERT_OK(env_->NewWritableFile(Path("f"), &file));
  ASSERT_OK(file->Append("parent"));
  ASSERT_OK(file->Flush());
  leveldb::WritableFile* temporary;
  ASSERT_OK(env_->NewWritableFile(Path("1.dbtmp"), &temporary));
  ASSERT_OK(temporary->Append("parent's"));
  const pid_t child = fork();
  if (child == 0) {
    const bool wrote = file->Append("child").ok() && file->Flush().ok();
    const bool named = env_->CreateDir(Path("d")).ok() || env_->FileExists(Path("f"));
    const bool put = temporary->Append("child").ok() || temporary->Flush().ok() || temporary->Sync().ok() ||
                     temporary->Close().ok();
    _exit(wrote || named || put ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(env_->FileExists(Path("1.dbtmp")));
  ASSERT_OK(temporary->Close());
  delete temporary;
  EXPECT_EQ(Content(Path("1.dbtmp")), "parent's");
  ASSERT_OK(file->Append("'s"));
  ASSERT_OK(file->Sync());
  delete file;
  EXPECT_EQ(Content(Path("f")), "parent's");
}
