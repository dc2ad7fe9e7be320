#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "preload/testing/sandbox.h"
#include "preload/testing/slice_server.h"

namespace carve::preload::testing {

/// A slice of one card on a driver that does no work (stub_driver.cc), with grants that do not change.
class StubSlice : public ::testing::Test {
 protected:
  /// The paths of libcarve and of the driver.
  StubSlice(const char* library, const char* driver) : library_(library), driver_(driver) {}
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace";
    static const std::string problem = enter_sandbox({library_, driver_, driver_, driver_});
    ASSERT_EQ(problem, "");
  }

  /// `limit` and `context_bytes` are in bytes of card memory, `compute` in hundredths of the card.
  void start_slice(std::uint64_t limit, std::uint32_t compute = 30, std::uint64_t context_bytes = 0) {
    CardSpec card;
    card.uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
    card.memory_limit = limit;
    card.compute_limit = compute;
    card.context_bytes = context_bytes;
    slice_ = std::make_unique<SliceServer>("/run/carve/slices/test", std::vector<CardSpec>{card});
  }

  /// Runs `body` in a child, because a process connects only once. Returns the child's exit code. A child that takes
  /// longer than `seconds` is killed; 0: no limit. −1: there is no child.
  template <class Body>
  int in_child(Body body, unsigned seconds = 0) {
    const pid_t pid = fork();
    if (pid < 0) return -1;
    if (pid == 0) {
      alarm(seconds);
      _exit(body());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::unique_ptr<SliceServer> slice_;

 private:
  const char* library_;
  const char* driver_;
};

}  // namespace carve::preload::testing
