#include "cmd/config_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

namespace carve::cmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigWatched : public ::testing::Test {
 protected:
  void SetUp() override {
    ::sigemptyset(&term_);
    ::sigaddset(&term_, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &term_, nullptr);
    std::remove(path_.c_str());
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  void TearDown() override { std::remove(path_.c_str()); }
  /// Whether this process got SIGTERM after one more check.
  bool told() {
    clock_.wait_for_sleepers(1);
    clock_.advance(std::chrono::seconds(1));
    const timespec limit = {0, 300'000'000};
    return ::sigtimedwait(&term_, nullptr, &limit) == SIGTERM;
  }
  /// Whether the watched process could start with it.
  static Result<void> check(const std::optional<std::string>& text) {
    if (!text || text->find("dors") == std::string::npos) return {};
    return fail(Code::kInvalidArgument, "watched.conf:1: dors: unknown key");
  }
  std::jthread watching(ConfigWatch& watch) {
    return std::jthread([this, &watch](const std::stop_token& stop) {
      watch.run([this](const Error& why) { told_of_.push_back(why.what); }, stop);
    });
  }
  sigset_t term_{};
  // Tests run concurrently, each in a process of its own.
  const std::string path_ = ::testing::TempDir() + "/watched-" + std::to_string(::getpid()) + ".conf";
  ManualClock clock_;
  std::string logged_;
  Log log_{[this](std::string_view line) { logged_ += line; }};
  std::vector<std::string> told_of_;
};

TEST_F(ConfigWatched, EndsTheProcessWhenTheFileAppears) {
  ConfigWatch watch(path_, check, clock_, log_);
  {
    const auto looking = watching(watch);
    EXPECT_FALSE(told());
    EXPECT_FALSE(watch.changed());
    write("plugins = slots\n");
    EXPECT_TRUE(told());
    EXPECT_TRUE(watch.changed());
  }
  EXPECT_THAT(logged_, HasSubstr("the settings changed"));
}

TEST_F(ConfigWatched, IgnoresARewriteWithTheSameContent) {
  write("plugins = slots\n");
  ConfigWatch watch(path_, check, clock_, log_);
  const auto looking = watching(watch);
  EXPECT_FALSE(told());
  write("plugins = slots\n");
  EXPECT_FALSE(told());
  write("plugins = dra\n");
  EXPECT_TRUE(told());
}

TEST_F(ConfigWatched, ComparesWithTheContentAtConstruction) {
  write("plugins = slots\n");
  ConfigWatch watch(path_, check, clock_, log_);
  write("plugins = dra\n");
  const auto looking = watching(watch);
  EXPECT_TRUE(told());
}

TEST_F(ConfigWatched, ComparesWithTheContentThatTheProcessHasRead) {
  write("plugins = dra\n");
  ConfigWatch watch(path_, "plugins = slots\n", check, clock_, log_);
  const auto looking = watching(watch);
  EXPECT_TRUE(told());
}

TEST_F(ConfigWatched, NoticesAFileThatAppearedBeforeTheWatchBegan) {
  write("plugins = dra\n");
  ConfigWatch watch(path_, std::nullopt, check, clock_, log_);
  const auto looking = watching(watch);
  EXPECT_TRUE(told());
}

// Otherwise all processes of an installation would end, and could not start again.
TEST_F(ConfigWatched, ReportsInvalidSettingsAndKeepsRunning) {
  write("plugins = slots\n");
  ConfigWatch watch(path_, check, clock_, log_);
  {
    const auto looking = watching(watch);
    EXPECT_FALSE(told());
    write("dors = slots\n");
    EXPECT_FALSE(told());
    EXPECT_FALSE(told()) << "at a later check";
    EXPECT_FALSE(watch.good());
    write("plugins = slots\n");
    EXPECT_FALSE(told()) << "the settings are corrected";
    EXPECT_TRUE(watch.good());
    write("dors = slots\n");
    EXPECT_FALSE(told());
    write("plugins = dra\n");
    EXPECT_TRUE(told());
  }
  EXPECT_THAT(told_of_, ElementsAre(HasSubstr("dors: unknown key"), HasSubstr("dors: unknown key")));
  EXPECT_THAT(logged_, HasSubstr("the new settings are invalid"));
  EXPECT_THAT(logged_, HasSubstr("the settings are again those with which this process started"));
}

}  // namespace
}  // namespace carve::cmd
