#include "adapter/cgroup/cgroup2.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "adapter/process/spawn.h"
#include "adapter/process/text_file.h"

namespace carve::cgroup {
namespace {

class Cgroup2Test : public testing::Test {
 protected:
  void SetUp() override {
    const auto mount = Cgroup2::find_mount();
    if (!mount || ::access(mount->c_str(), W_OK) != 0)
      GTEST_SKIP() << "SKIPPED: no writable cgroup2 mount here";
    root_ = *mount + "/carve-test-" + std::to_string(::getpid());
    auto opened = Cgroup2::open(root_);
    if (!opened) GTEST_SKIP() << "SKIPPED: " << opened.error().what;
    groups_ = std::move(*opened);
  }
  void TearDown() override { ::rmdir(root_.c_str()); }
  std::string root_;
  std::unique_ptr<Cgroup2> groups_;
};

TEST_F(Cgroup2Test, IsPopulatedExactlyWhileAProcessLives) {
  ASSERT_TRUE(groups_->create("a"));
  EXPECT_FALSE(groups_->create("a"));
  EXPECT_FALSE(*groups_->populated("a"));
  EXPECT_FALSE(*groups_->has_run("a"));
  const auto child = process::spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {}, .log_file = {}});
  ASSERT_TRUE(child);
  ASSERT_TRUE(groups_->join("a", child->pid));
  EXPECT_TRUE(*groups_->populated("a"));
  EXPECT_EQ(groups_->slice_of(child->pid), "a");
  EXPECT_EQ(*groups_->pids("a"), std::vector<std::int32_t>{child->pid});
  EXPECT_EQ(groups_->remove("a").error().code, Code::kFailedPrecondition);

  groups_->wait_change(std::chrono::milliseconds(0));  // consumes the event of the join
  ASSERT_TRUE(groups_->kill("a"));
  ASSERT_TRUE(process::wait_gone(*child, std::chrono::seconds(5)));
  for (int i = 0; i < 50 && *groups_->populated("a"); ++i)
    groups_->wait_change(std::chrono::milliseconds(100));
  EXPECT_FALSE(*groups_->populated("a"));
  EXPECT_TRUE(*groups_->has_run("a"));
  ASSERT_TRUE(groups_->remove("a"));
  EXPECT_TRUE(groups_->remove("a"));
  EXPECT_TRUE(groups_->list()->empty());
  EXPECT_EQ(groups_->populated("a").error().code, Code::kNotFound);
}

TEST_F(Cgroup2Test, AnExpelledProcessMovesToTheGroupOfItsParent) {
  ASSERT_TRUE(groups_->create("a"));
  const auto child = process::spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {}, .log_file = {}});
  ASSERT_TRUE(child);
  const auto group_of = [](const std::string& pid) {
    const std::string text = process::read_text("/proc/" + pid + "/cgroup").value_or("");
    const auto begin = text.find("0::");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  ASSERT_TRUE(groups_->expel("a", child->pid)) << "the process is not in the group";
  ASSERT_TRUE(groups_->join("a", child->pid));
  const auto expelled = groups_->expel("a", child->pid);
  ASSERT_TRUE(expelled) << expelled.error().what;
  EXPECT_EQ(group_of(std::to_string(child->pid)), group_of("self"));
  EXPECT_TRUE(groups_->pids("a")->empty());
  process::stop_child(*child, std::chrono::milliseconds(0));
  ASSERT_TRUE(groups_->expel("a", child->pid)) << "the process has ended";
  EXPECT_TRUE(groups_->remove("a"));
}

TEST_F(Cgroup2Test, WakeEndsTheWait) {
  groups_->wake();
  const auto before = std::chrono::steady_clock::now();
  groups_->wait_change(std::chrono::seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
}

TEST(Cgroup2, RefusesAFolderThatIsNotACgroup) {
  const auto opened = Cgroup2::open("/tmp/carve-no-cgroup");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnavailable);
  ::rmdir("/tmp/carve-no-cgroup");
}

}  // namespace
}  // namespace carve::cgroup
