#include "cmd/config_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>

namespace carve::cmd {
namespace {

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
  /// Whether this process was told to end after one more look.
  bool told() {
    clock_.wait_for_sleepers(1);
    clock_.advance(std::chrono::seconds(1));
    const timespec limit = {0, 300'000'000};
    return ::sigtimedwait(&term_, nullptr, &limit) == SIGTERM;
  }
  sigset_t term_{};
  // Tests run beside each other, each in a process of its own.
  const std::string path_ = ::testing::TempDir() + "/watched-" + std::to_string(::getpid()) + ".conf";
  ManualClock clock_;
  std::string logged_;
  Log log_{[this](std::string_view line) { logged_ += line; }};
};

TEST_F(ConfigWatched, AFileThatComesLaterEndsTheProcess) {
  const ConfigWatch watch(path_, clock_, log_);
  EXPECT_FALSE(told());
  write("doors = slots\n");
  EXPECT_TRUE(told());
  EXPECT_THAT(logged_, ::testing::HasSubstr("the settings are others now"));
}

TEST_F(ConfigWatched, TheSameContentDoesNot) {
  write("doors = slots\n");
  const ConfigWatch watch(path_, clock_, log_);
  EXPECT_FALSE(told());
  write("doors = slots\n");
  EXPECT_FALSE(told());
  write("doors = dra\n");
  EXPECT_TRUE(told());
}

}  // namespace
}  // namespace carve::cmd
