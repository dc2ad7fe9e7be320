#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "preload/testing/slice_server.h"

namespace carve::isolation {

inline constexpr std::uint64_t kMiB = 1U << 20;
/// The machine of this test binary, by default "t4x1". Change it before the first test runs.
std::string& profile_under_test();

/// The simulated driver's own account; all tests are judged by it.
struct Truth {
  std::uint64_t explicit_bytes = 0;
  std::uint64_t explicit_high = 0;  // highest simultaneous sum
  std::uint64_t context_bytes = 0;
  int alive = 0;
};

/// For all processes in the control group `group` (v2 path), or for all when it is empty; on one card, or on all.
Truth truth_of_group(const std::string& group, int card = -1);
/// For one process, dead or alive; on one card, or on all.
Truth truth_of_process(pid_t pid, int card = -1);
/// The share of card 0 that the process got, in percent, for each whole window of `window_ms` after `since_ns`.
std::vector<double> delivered(pid_t pid, std::uint64_t since_ns, unsigned window_ms);
/// The driver's clock.
std::uint64_t driver_now_ns();
/// The file at libcuda's names. Change it before the first test runs.
std::string& library_under_test();
/// UUIDs of the machine's cards.
std::vector<std::string> card_uuids();
inline std::string card_uuid() { return card_uuids().front(); }

/// A private control group in the v2 hierarchy. enter() moves processes into it. Removed by the destructor.
class ControlGroup {
 public:
  explicit ControlGroup(const std::string& name);
  ~ControlGroup();
  [[nodiscard]] bool usable() const { return !folder_.empty(); }
  [[nodiscard]] const std::string& path() const { return path_; }  // relative to the hierarchy's root
  void enter() const;                                              // moves the calling process

 private:
  std::string folder_;
  std::string path_;
};

/// One simulated driver per test process, the libraries at the usual names, and a slice with constant grants.
class SliceTest : public ::testing::Test {
 protected:
  void SetUp() override;

  /// Starts a slice with every card of the machine and this limit on each.
  void start_slice(std::uint64_t limit, std::uint32_t compute = 100);
  [[nodiscard]] std::uint64_t announced(std::size_t card = 0) const { return slice_->used_bytes(card); }

  /// Runs `body` in a child. Returns its exit code (0: as expected), or 1000 + signal when it was killed. −1: there is
  /// no child.
  int in_child(const std::function<int()>& body, pid_t* pid = nullptr);
  /// Calls fork() while the slice's server holds no lock.
  pid_t fork_quietly();

  std::unique_ptr<preload::testing::SliceServer> slice_;
};

}  // namespace carve::isolation
