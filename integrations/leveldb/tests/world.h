// What the tests of the Env share: the target that they run on, and a directory of their own in it.
#ifndef WELDFS_LEVELDB_TESTS_WORLD_H
#define WELDFS_LEVELDB_TESTS_WORLD_H

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "leveldb/env.h"
#include "weldfs_leveldb.h"

#define ASSERT_OK(s)                      \
  do {                                    \
    const leveldb::Status ok_ = (s);      \
    ASSERT_TRUE(ok_.ok()) << ok_.ToString(); \
  } while (false)

// An Env of the target of WELDFS_TEST_TARGET, and an empty directory for each test.
class World : public testing::Test {
 protected:
  void SetUp() override {
    const char* target = std::getenv("WELDFS_TEST_TARGET");
    ASSERT_NE(target, nullptr) << "WELDFS_TEST_TARGET says the target";
    target_ = target;
    leveldb::Env* env = nullptr;
    ASSERT_OK(weldfs::NewLevelDBEnv(target_, &env));
    env_.reset(env);
    dir_ = std::string("/") + testing::UnitTest::GetInstance()->current_test_info()->name();
    Erase(dir_);
    ASSERT_OK(env_->CreateDir(dir_));
  }

  void Erase(const std::string& dir) {
    std::vector<std::string> names;
    if (!env_->GetChildren(dir, &names).ok()) return;
    for (const std::string& name : names) {
      if (!env_->RemoveFile(dir + "/" + name).ok()) Erase(dir + "/" + name);
    }
    env_->RemoveDir(dir);
  }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  std::string Content(const std::string& path) {
    std::string content;
    const leveldb::Status s = leveldb::ReadFileToString(env_.get(), path, &content);
    return s.ok() ? content : s.ToString();
  }

  uint64_t Size(const std::string& path) {
    uint64_t size = 0;
    EXPECT_TRUE(env_->GetFileSize(path, &size).ok());
    return size;
  }

  std::string target_, dir_;
  std::unique_ptr<leveldb::Env> env_;
};

#endif
