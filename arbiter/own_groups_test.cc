#include "arbiter/own_groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace carve::arbiter {
namespace {

class OwnGroupsTest : public ::testing::Test {
 protected:
  OwnGroupsTest() {
    std::filesystem::create_directories(root_ / "groups/a");
    std::filesystem::create_directories(root_ / "groups/ab");
  }
  ~OwnGroupsTest() override { std::filesystem::remove_all(root_); }
  void process(pid_t pid, const std::string& cgroup) {
    const auto folder = root_ / "proc" / std::to_string(pid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "cgroup") << cgroup;
  }
  [[nodiscard]] bool may_join(const std::string& slice, pid_t pid) const {
    return OwnGroups(root_ / "groups", "/carve", root_ / "proc").may_join(slice, pid);
  }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("carve-own-groups-" + std::to_string(::getpid()));
};

TEST_F(OwnGroupsTest, AProcessInTheSlicesGroupOrBelowMayJoin) {
  process(7, "12:cpu:/elsewhere\n0::/carve/a\n");
  process(8, "0::/carve/a/made/by/itself\n");
  EXPECT_TRUE(may_join("a", 7));
  EXPECT_TRUE(may_join("a", 8));
}

TEST_F(OwnGroupsTest, ANeighbourAndAnUnrelatedProcessMayNotJoin) {
  process(7, "0::/carve/ab\n");                    // a name with the same prefix
  process(8, "0::/user.slice/carve/a\n");          // the same path elsewhere
  process(9, "3:cpu:/carve/a\n0::/\n");            // another hierarchy
  EXPECT_FALSE(may_join("a", 7));
  EXPECT_FALSE(may_join("a", 8));
  EXPECT_FALSE(may_join("a", 9));
  EXPECT_FALSE(may_join("a", 10)) << "it has ended";
}

TEST_F(OwnGroupsTest, AnyProcessMayJoinASliceWithoutAGroup) {
  process(7, "0::/kubepods/pod1/x\n");
  EXPECT_TRUE(may_join("container", 7));
  EXPECT_TRUE(OwnGroups("", "").may_join("a", 7)) << "no slice here has one";
}

}  // namespace
}  // namespace carve::arbiter
