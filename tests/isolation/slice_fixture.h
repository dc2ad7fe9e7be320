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
/// The machine of this test binary, "t4x1" where it says nothing else; to be changed before the first test runs.
std::string& profile_under_test();

/// What the simulated driver's own account says; all tests judge by this.
struct Truth {
  std::uint64_t explicit_bytes = 0;
  std::uint64_t explicit_high = 0;  // highest simultaneous sum
  std::uint64_t context_bytes = 0;
  int alive = 0;
};

/// Of all processes in the control group `group` (v2 path), or of all when it is empty; on one card, or on all.
Truth truth_of_group(const std::string& group, int card = -1);
/// Of one process, dead or alive; on one card, or on all.
Truth truth_of_process(pid_t pid, int card = -1);
/// Share of card 0 delivered to the process, in per cent, for each whole window of `window_ms` after `since_ns`.
std::vector<double> delivered(pid_t pid, std::uint64_t since_ns, unsigned window_ms);
/// The driver's clock.
std::uint64_t driver_now_ns();
/// The file that stands under libcuda's names; to be changed before the first test runs.
std::string& library_under_test();
/// UUIDs of the machine's cards.
std::vector<std::string> card_uuids();
inline std::string card_uuid() { return card_uuids().front(); }

/// A control group of one's own in the v2 hierarchy; processes are put there by enter(). Removed at the end.
class ControlGroup {
 public:
  explicit ControlGroup(const std::string& name);
  ~ControlGroup();
  [[nodiscard]] bool usable() const { return !folder_.empty(); }
  [[nodiscard]] const std::string& path() const { return path_; }  // below the hierarchy's root
  void enter() const;                                              // the calling process

 private:
  std::string folder_;
  std::string path_;
};

/// One simulated driver per test process, the libraries under the usual names, a slice whose grants stand still.
class SliceTest : public ::testing::Test {
 protected:
  void SetUp() override;

  /// Of every card of the machine, with this limit on each.
  void start_slice(std::uint64_t limit, std::uint32_t compute = 100);
  [[nodiscard]] std::uint64_t announced(std::size_t card = 0) const { return slice_->used_bytes(card); }

  /// Runs `body` in a child; its exit code is the answer (0: as wanted), 1000 + signal when killed.
  int in_child(const std::function<int()>& body, pid_t* pid = nullptr);
  /// fork(), while the slice's server holds no lock.
  pid_t fork_quietly();

  std::unique_ptr<preload::testing::SliceServer> slice_;
};

}  // namespace carve::isolation
