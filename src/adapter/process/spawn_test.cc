#include "adapter/process/spawn.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "adapter/process/text_file.h"

namespace carve {
namespace {

std::string temp_folder() {
  char name[] = "/tmp/carve-spawn-XXXXXX";
  return ::mkdtemp(name);
}

TEST(Spawn, AProgramThatIsNotThereIsAnErrorNotAnExitCode) {
  const auto child = spawn({.program = "/nonexistent/program", .args = {}, .keep = {}, .log_file = {}});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().what.find("/nonexistent/program"), std::string::npos);
}

TEST(Spawn, TheChildGetsItsDescriptorsAndNoOthers) {
  const std::string folder = temp_folder();
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

TEST(Spawn, StopKillsWhatDoesNotListen) {
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
  const std::string path = temp_folder() + "/x.lock";
  Child child;
  {
    auto lock = LockFile::take(path);
    ASSERT_TRUE(lock);
    auto spawned = spawn({.program = "/bin/sleep", .args = {"100"}, .keep = {lock->fd()}, .log_file = {}});
    ASSERT_TRUE(spawned);
    child = std::move(*spawned);
    ASSERT_TRUE(lock->write_pid(child.pid));
  }
  EXPECT_EQ(LockFile::holder(path), child.pid);
  const auto second = LockFile::take(path);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_NE(second.error().what.find(std::to_string(child.pid)), std::string::npos);
  send_signal(child, SIGKILL);
  ASSERT_TRUE(wait_gone(child, std::chrono::seconds(5)));
  EXPECT_FALSE(LockFile::holder(path));
  EXPECT_TRUE(LockFile::take(path));
}

TEST(TextFile, ReplaceLeavesNoTemporaryName) {
  const std::string folder = temp_folder();
  ASSERT_TRUE(replace_file(folder + "/a", "one", 0600));
  ASSERT_TRUE(replace_file(folder + "/a", "two", 0644));
  EXPECT_EQ(*read_text(folder + "/a"), "two");
  EXPECT_EQ(*list_folder(folder), std::vector<std::string>{"a"});
  EXPECT_FALSE(replace_file(folder + "/none/a", "x", 0600));
}

}  // namespace
}  // namespace carve
