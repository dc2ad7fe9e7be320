// State that outlives a program: its process, which calls exec, and its children, which inherit its descriptors. The
// tests use the real arbiter and are judged by the simulated driver, which keeps memory as long as a process has the
// descriptors.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/isolation/arbiter_process.h"
#include "tests/isolation/driver_calls.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kContext = 105 * kMiB;
constexpr std::uint64_t kRoom = 128 * kMiB;
constexpr char kAgain[] = "CARVE_TEST_AFTER_EXEC";

/// What this binary does instead of tests after an exec in a slice: check that it has all of the slice.
const int kAfterExec = [] {
  if (getenv(kAgain) != nullptr) {
    CUdeviceptr address = 0;
    if (start_driver() != 0) _exit(21);
    if (free_memory() != kRoom) _exit(22);
    _exit(call("cuMemAlloc_v2", &address, static_cast<std::size_t>(kRoom)) == 0 ? 0 : 23);
  }
  return 0;
}();

template <class Condition>
bool eventually(Condition condition, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class HeirsTest : public SliceTest {};

TEST_F(HeirsTest, TheProgramAfterExecHasTheWholeSlice) {
  ASSERT_EQ(kAfterExec, 0);
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("exec", card_of(kContext + kRoom, 50, abi::ShareClass::kBurst)), "");
  EXPECT_EQ(in_child([] {
    see_only("exec");
    CUdeviceptr address = 0;
    if (start_driver() != 0 || call("cuMemAlloc_v2", &address, static_cast<std::size_t>(kRoom)) != 0) return 1;
    setenv(kAgain, "1", 1);
    execl("/proc/self/exe", "heirs", nullptr);
    return 2;
  }), 0);
}

TEST_F(HeirsTest, MemoryThatAChildKeepsStaysCharged) {
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("heirs", card_of(2 * kContext + kRoom, 50, abi::ShareClass::kBurst)), "");
  int numbers[2];
  ASSERT_EQ(pipe(numbers), 0);
  const pid_t parent = fork_quietly();
  if (parent == 0) {
    see_only("heirs");
    CUdeviceptr address = 0;
    if (start_driver() != 0 || call("cuMemAlloc_v2", &address, static_cast<std::size_t>(kRoom)) != 0) _exit(1);
    const pid_t heir = fork();
    if (heir == 0) {
      prctl(PR_SET_PDEATHSIG, 0);
      for (;;) pause();
    }
    (void)!write(numbers[1], &heir, sizeof heir);
    for (;;) pause();
  }
  pid_t heir = -1;
  ASSERT_EQ(read(numbers[0], &heir, sizeof heir), static_cast<ssize_t>(sizeof heir));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // The driver has not freed it, so no other process gets it.
  EXPECT_EQ(truth_of_process(parent).explicit_bytes, kRoom);
  EXPECT_FALSE(eventually([&] { return arbiter.announced_bytes("heirs") == 0; }, 1));
  EXPECT_EQ(in_child([] {
    see_only("heirs");
    CUdeviceptr address = 0;
    if (start_driver() != 0) return 1;
    return call("cuMemAlloc_v2", &address, std::size_t{2 * kMiB}) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 2;
  }), 0);
  kill(heir, SIGKILL);
  EXPECT_TRUE(eventually([&] { return arbiter.announced_bytes("heirs") == 0; }, 3));
  EXPECT_TRUE(eventually([&] { return truth_of_process(parent).explicit_bytes == 0; }, 3));
  close(numbers[0]);
  close(numbers[1]);
}

}  // namespace
}  // namespace carve::isolation
