#include "adapter/cdi/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace carve::cdi {
namespace {

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root to become other users";
    ASSERT_NE(::mkdtemp(root_), nullptr);
    ASSERT_EQ(::chmod(root_, 0711), 0);
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  [[nodiscard]] std::string folder() const { return std::string(root_) + "/a"; }
  /// True when the user with this ID can traverse the folder.
  [[nodiscard]] bool passes(uid_t user) const {
    const std::string inside = folder() + "/a";
    const pid_t child = ::fork();
    if (child == 0) {
      const bool became = ::setgid(user) == 0 && ::setuid(user) == 0;
      ::_exit(became && ::access(inside.c_str(), F_OK) == 0 ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status == 0;
  }
  char root_[32] = "/tmp/carve-folder-XXXXXX";
};

TEST_F(GateTest, LetsOnlyItsUserThrough) {
  ASSERT_TRUE(allow_through(folder(), 65534));
  ASSERT_TRUE(allow_through(folder(), 65534)) << "a restarted agent repeats the call";
  ASSERT_EQ(::mkdir((folder() + "/a").c_str(), 0755), 0);
  struct stat info = {};
  ASSERT_EQ(::stat(folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0U);
  EXPECT_EQ(info.st_mode & 0707U, 0700U);
  EXPECT_FALSE(passes(4711));
  if ((info.st_mode & 0070U) == 0) GTEST_SKIP() << "SKIPPED: /tmp has no access lists";
  EXPECT_TRUE(passes(65534));
}

TEST_F(GateTest, ReportsAFolderThatCannotBeCreated) { EXPECT_FALSE(allow_through("/proc/none/a", 1)); }

}  // namespace
}  // namespace carve::cdi
