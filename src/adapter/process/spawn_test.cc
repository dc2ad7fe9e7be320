#include "adapter/process/spawn.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "adapter/process/text_file.h"
#include "base/testing/temp_folder.h"

namespace carve::process {
namespace {

TEST(Spawn, AMissingProgramIsAnErrorAndNotAnExitCode) {
  const auto child = spawn({.program = "/nonexistent/program", .args = {}, .keep = {}, .log_file = {}});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().what.find("/nonexistent/program"), std::string::npos);
}

TEST(Spawn, TheChildHasOnlyItsDescriptors) {
  const TempFolder temp;
  const std::string& folder = temp.path();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto child = spawn({.program = "/bin/sh",
                            .args = {"-c", "echo hello >&3; ls /proc/$$/fd; :"},
                            .keep = {ends[1]},
                            .log_file = folder + "/log"});
  ASSERT_TRUE(child);
  ASSERT_TRUE(wait_gone(*child, std::chrono::seconds(5)));
  char text[16] = {};
  EXPECT_EQ(::read(ends[0], text, sizeof(text)), 6);
  EXPECT_STREQ(text, "hello\n");
  EXPECT_EQ(*read_text(folder + "/log"), "0\n1\n2\n3\n");
}

TEST(Spawn, StopKillsAProcessThatIgnoresSigterm) {
  const auto child = spawn({.program = "/bin/sh",
                            .args = {"-c", "trap '' TERM; while :; do sleep 1; done"},
                            .keep = {},
                            .log_file = {}});
  ASSERT_TRUE(child);
  EXPECT_FALSE(is_gone(*child));
  stop_child(*child, std::chrono::milliseconds(50));
  EXPECT_TRUE(is_gone(*child));
}

TEST(LockFileTest, AChildThatKeepsTheDescriptorKeepsTheLock) {
  const TempFolder temp;
  const std::string path = temp.path() + "/x.lock";
  Child child;
  {
    auto lock = LockFile::take(path);
    ASSERT_TRUE(lock);
    auto spawned = spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {lock->fd()}, .log_file = {}});
    ASSERT_TRUE(spawned);
    child = std::move(*spawned);
    ASSERT_TRUE(lock->write_pid(child.pid));
  }
  const auto holder = LockFile::holder(path);
  ASSERT_TRUE(holder && *holder);
  EXPECT_EQ((*holder)->pid, child.pid);
  const auto second = LockFile::take(path);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_NE(second.error().what.find(std::to_string(child.pid)), std::string::npos);
  send_signal(child, SIGKILL);
  ASSERT_TRUE(wait_gone(child, std::chrono::seconds(5)));
  const auto unlocked = LockFile::holder(path);
  EXPECT_TRUE(unlocked && !*unlocked);
  EXPECT_TRUE(LockFile::take(path));
}

/// If any user could take the lock, any user could prevent a start.
TEST(LockFileTest, OtherUsersCannotOpenIt) {
  const TempFolder temp;
  const std::string path = temp.path() + "/x.lock";
  ASSERT_TRUE(replace_file(path, "7", 0644));  // as an earlier release wrote it
  const auto lock = LockFile::take(path);
  ASSERT_TRUE(lock);
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST(LockFileTest, AReusedPidIsNotTheHolder) {
  const TempFolder temp;
  const std::string path = temp.path() + "/x.lock";
  const auto lock = LockFile::take(path);
  ASSERT_TRUE(lock);
  const auto own = std::to_string(::getpid());
  const auto named = [&](const std::string& text) {
    EXPECT_TRUE(write_text(path, text + std::string(40, ' ')));
    return LockFile::holder(path);
  };
  EXPECT_EQ(named(own + " 1").error().code, Code::kFailedPrecondition);
  EXPECT_EQ(named("0").error().code, Code::kFailedPrecondition);
  const auto earlier = named(own);  // an earlier release wrote no start time
  ASSERT_TRUE(earlier && *earlier);
  EXPECT_EQ((*earlier)->pid, ::getpid());
}

/// The supervisor was killed between taking the lock and writing its PID. `carve down` must still stop the others.
TEST(StopHolders, StopsTheOtherHoldersWhenOneIsUnknown) {
  const TempFolder temp;
  const std::string& folder = temp.path();
  const auto unknown = LockFile::take(folder + "/driver.lock");
  ASSERT_TRUE(unknown);
  ASSERT_TRUE(write_text(folder + "/driver.lock", "0" + std::string(40, ' ')));
  Child child;
  {
    auto lock = LockFile::take(folder + "/arbiter.lock");
    ASSERT_TRUE(lock);
    auto spawned = spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {lock->fd()}, .log_file = {}});
    ASSERT_TRUE(spawned);
    child = std::move(*spawned);
    ASSERT_TRUE(lock->write_pid(child.pid));
  }
  const auto stopped = stop_holders({folder + "/driver.lock", folder + "/arbiter.lock", folder + "/agent.lock"},
                                    std::chrono::seconds(5));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kFailedPrecondition);
  EXPECT_NE(stopped.error().what.find("driver.lock"), std::string::npos) << stopped.error().what;
  EXPECT_TRUE(is_gone(child));
}

TEST(TextFile, ReplaceFileLeavesNoTemporaryFile) {
  const TempFolder temp;
  const std::string& folder = temp.path();
  ASSERT_TRUE(replace_file(folder + "/a", "one", 0600));
  ASSERT_TRUE(replace_file(folder + "/a", "two", 0644));
  EXPECT_EQ(*read_text(folder + "/a"), "two");
  EXPECT_EQ(*list_folder(folder), std::vector<std::string>{"a"});
  EXPECT_FALSE(replace_file(folder + "/none/a", "x", 0600));
}

}  // namespace
}  // namespace carve::process
