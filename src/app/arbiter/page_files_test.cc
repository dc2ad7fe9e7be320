#include "app/arbiter/page_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace carve::arbiter {
namespace {

/// An account page that nobody but this process maps, once for writing: AccountFile does.
class AccountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = PageFiles::make_account(name_);
    ASSERT_TRUE(made) << made.error().what;
    account_ = std::move(*made);
  }
  [[nodiscard]] Result<int> count(pid_t pid) const { return PageFiles::count_mappings(pid, name_, account_.inode); }
  [[nodiscard]] int counted() const { return count(getpid()).value_or(-1); }

  const std::string name_ = "page-files-test-0";
  AccountFile account_;
};

TEST_F(AccountTest, WhatIsMappedForReadingHoldsNoSlot) {
  ASSERT_EQ(counted(), 1);
  const std::string own = "/proc/self/fd/" + std::to_string(account_.fd.get());
  const Fd read_only(::open(own.c_str(), O_RDONLY | O_CLOEXEC));
  void* nvml = mmap(nullptr, abi::kAccountPageBytes, PROT_READ, MAP_SHARED, read_only.get(), 0);
  ASSERT_NE(nvml, MAP_FAILED);
  EXPECT_EQ(counted(), 1) << "NVML's mapping stands for no slot";
  void* second = mmap(nullptr, abi::kAccountPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, account_.fd.get(), 0);
  ASSERT_NE(second, MAP_FAILED);
  EXPECT_EQ(counted(), 2) << "another library instance";
  munmap(second, abi::kAccountPageBytes);
  munmap(nvml, abi::kAccountPageBytes);
}

TEST_F(AccountTest, WhoIsGoneMapsNothing) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const auto counted = count(child);
  ASSERT_TRUE(counted) << counted.error().what;
  EXPECT_EQ(*counted, 0);
}

TEST_F(AccountTest, WhatCannotBeReadIsNotNothing) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto counted = count(getpid());
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(counted);
  EXPECT_EQ(counted.error().code, Code::kResourceExhausted) << counted.error().what;
}

TEST_F(AccountTest, AProcessWhoseFirstThreadHasEndedIsNotGone) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] {
      for (;;) pause();
    }).detach();
    static_cast<void>(write(ready[1], "x", 1));
    syscall(SYS_exit, 0);  // of this thread alone
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  Result<int> counted = 1;
  for (int i = 0; i < 5000 && counted; ++i) {
    usleep(1000);
    counted = count(child);
    if (counted && *counted == 0) break;
  }
  EXPECT_FALSE(counted) << "it lives, and was said to map " << counted.value_or(-1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace carve::arbiter
