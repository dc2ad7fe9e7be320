#include "app/arbiter/page_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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
  [[nodiscard]] int counted() const { return PageFiles::count_mappings(getpid(), name_, account_.inode); }

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

}  // namespace
}  // namespace carve::arbiter
