#include "arbiter/account_search.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <string>

#include "base/thread.h"

namespace carve::arbiter {
namespace {

/// An account page that only this process maps, once for writing, through AccountFile.
class AccountSearchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = PageFiles::make_account(name_);
    ASSERT_TRUE(made) << made.error().what;
    account_ = std::move(*made);
  }
  /// The processes that map the page for writing; nullopt: the page was not found.
  [[nodiscard]] std::optional<std::set<std::int32_t>> found() const {
    auto all = find_accounts({account_.inode});
    const auto page = all.find(account_.inode);
    if (page == all.end()) return std::nullopt;
    EXPECT_EQ(page->second.file.inode, account_.inode);
    EXPECT_EQ(page->second.file.page->magic, account_.page.get() ? account_.page->magic : 0);
    return page->second.processes;
  }

  const std::string name_ = "account-search-test-0";
  AccountFile account_;
};

TEST_F(AccountSearchTest, FindsAPageAndTheProcessesThatMapItForWriting) {
  account_.page->magic = abi::kAccountMagic;
  EXPECT_EQ(found(), std::set<std::int32_t>{getpid()});
  EXPECT_TRUE(find_accounts({}).empty());
  EXPECT_TRUE(find_accounts({~account_.inode}).empty()) << "the name alone does not count";
}

TEST_F(AccountSearchTest, AReadOnlyMappingDoesNotCount) {
  const std::string own = "/proc/self/fd/" + std::to_string(account_.fd.get());
  const Fd read_only(::open(own.c_str(), O_RDONLY | O_CLOEXEC));
  void* nvml = mmap(nullptr, abi::kAccountPageBytes, PROT_READ, MAP_SHARED, read_only.get(), 0);
  ASSERT_NE(nvml, MAP_FAILED);
  account_.page = {};
  EXPECT_EQ(found(), std::set<std::int32_t>{}) << "NVML's mapping has no account entry, but leads to the page";
  munmap(nvml, abi::kAccountPageBytes);
}

TEST_F(AccountSearchTest, APageThatNoProcessMapsIsNotFound) {
  account_.page = {};
  EXPECT_EQ(found(), std::nullopt);
}

/// A child that continues in a second thread after its first one has ended; it has this process's mappings.
class WithoutLeader {
 public:
  WithoutLeader() {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      // Never joined: the process, which has no other thread then, ends by a signal.
      static_cast<void>(new Thread("remains", [] {
        for (;;) pause();
      }));
      static_cast<void>(write(ready[1], "x", 1));
      syscall(SYS_exit, 0);  // ends this thread only
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    const std::string exe = "/proc/" + std::to_string(pid_) + "/exe";  // like its memory, no longer visible
    for (int i = 0; i < 5000 && access(exe.c_str(), F_OK) == 0; ++i) usleep(1000);
    EXPECT_NE(access(exe.c_str(), F_OK), 0);
  }
  WithoutLeader(const WithoutLeader&) = delete;
  WithoutLeader& operator=(const WithoutLeader&) = delete;
  ~WithoutLeader() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST_F(AccountSearchTest, AProcessWithoutItsFirstThreadIsReadThroughAnother) {
  const WithoutLeader child;
  account_.page = {};  // so that no other process maps it
  EXPECT_EQ(found(), std::set<std::int32_t>{child.pid()});
}

}  // namespace
}  // namespace carve::arbiter
