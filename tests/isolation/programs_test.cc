// Random programs of the driver API, run with the library and without. The driver's own account never exceeds the limit
// on any card, nothing stays charged, and every result is the same except for refusals. A seed produces the same
// program on every machine. A failing program is reduced and printed with its seed.
//   CARVE_SOAK=1  runs for CARVE_SOAK_SECONDS (600), starting at CARVE_SEED (default: the time of day)
//   CARVE_SEED=N  without CARVE_SOAK: runs only this seed
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>

#include "tests/isolation/programs.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kContext = 105 * kMiB;
constexpr std::uint64_t kFirstSeed = 1;
constexpr std::uint64_t kSeeds = 100;
constexpr int kSlowest = 30;  // seconds for one run
constexpr char kLibrary[] = "libcuda.so.1";
constexpr char kDriver[] = "/usr/lib/carve/driver/libcuda.so.1";

const bool kTwoCards = [] {
  profile_under_test() = "t4x2";
  return true;
}();

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class ProgramsTest : public SliceTest {
 protected:
  void SetUp() override {
    SliceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    run_ = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(run_), MAP_FAILED);
    ASSERT_TRUE(kTwoCards);
  }

  /// Results of the program's steps; `wrong`: the failure that the parent found between the rounds.
  std::vector<int> run(const Program& program, bool in_slice, std::string* wrong);
  /// Returns "" or what is wrong with this program.
  std::string judge(const Program& program);
  Program shrink(Program program);

  struct Counts {
    std::uint64_t programs = 0, steps = 0, granted = 0, refused = 0, left_out = 0;
  };
  Counts counts_;

 private:
  std::string check_account(const Program& program, unsigned round, const std::string& group);
  std::string attend(const Program& program, bool in_slice, const std::vector<pid_t>& pids, const std::string& group);

  Shared* run_ = nullptr;
  unsigned runs_ = 0;
};

/// Checks the account while all processes wait. `round` beyond the last: they have freed everything.
std::string ProgramsTest::check_account(const Program& program, unsigned round, const std::string& group) {
  const bool over = round == program.rounds;
  const std::uint64_t limit = program.processes * kContext + program.room;
  for (int card = 0; card < static_cast<int>(kCards); ++card) {
    const Truth truth = truth_of_group(group, card);
    const std::uint64_t holds = truth.explicit_bytes + truth.context_bytes;
    const std::uint64_t charged = slice_ == nullptr ? 0 : announced(static_cast<std::size_t>(card));
    const std::string state = "after round " + std::to_string(round) + " card " + std::to_string(card) + " holds " +
                              std::to_string(holds) + " and " + std::to_string(charged) + " is charged";
    if (over && (holds != 0 || charged != 0)) return state + ", after everything was freed";
    if (slice_ == nullptr) continue;
    if (holds > charged || charged > limit) return state + ", of " + std::to_string(limit);
    if (truth.explicit_high > program.room) {
      return state + "; at its highest " + std::to_string(truth.explicit_high) + " of " + std::to_string(program.room);
    }
  }
  return "";
}

/// Opens one round after the other until the processes have exited.
std::string ProgramsTest::attend(const Program& program, bool in_slice, const std::vector<pid_t>& pids,
                                 const std::string& group) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kSlowest);
  for (unsigned part = 0; part < program.rounds + 2; ++part) {
    while (run_->arrived.load() < (part + 1) * program.processes) {
      for (const pid_t pid : pids) {
        siginfo_t ended = {};
        if (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == pid) {
          return "in part " + std::to_string(part) + " a process ended with " + std::to_string(ended.si_status);
        }
      }
      if (std::chrono::steady_clock::now() > end) return "part " + std::to_string(part) + " does not end";
      usleep(100);
    }
    const bool over = part == program.rounds + 1;
    if (over || (in_slice && part > 0 && part % 2 == 0)) {
      const std::string wrong = check_account(program, part - 1, group);
      if (!wrong.empty()) return wrong;
    }
    run_->opened.store(part + 1);
  }
  return "";
}

std::vector<int> ProgramsTest::run(const Program& program, bool in_slice, std::string* wrong) {
  const ControlGroup group("carve-programs-" + std::to_string(++runs_));
  if (!group.usable()) {
    *wrong = "no cgroup v2 hierarchy to write to";
    return {};
  }
  new (run_) Shared{};
  for (int& result : run_->results) result = kNeverRan;
  slice_.reset();
  if (in_slice) start_slice(program.processes * kContext + program.room);
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (unsigned process = 0; process < program.processes; ++process) {
    const pid_t pid = fork_quietly();
    if (pid == 0) {
      group.enter();
      _exit(run_process(program, process, *run_, in_slice ? kLibrary : kDriver));
    }
    pids.push_back(pid);
  }
  *wrong = attend(program, in_slice, pids, group.path());
  if (!wrong->empty()) run_->stop.store(true);
  for (const pid_t pid : pids) {
    if (!wrong->empty()) kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    if (wrong->empty() && status != 0) *wrong = "a process ended with status " + std::to_string(status);
  }
  if (!wrong->empty()) *wrong = (in_slice ? "with the library: " : "without the library: ") + *wrong;
  return {run_->results, run_->results + program.steps.size()};
}

std::string ProgramsTest::judge(const Program& program) {
  std::string wrong;
  const std::vector<int> bare = run(program, false, &wrong);
  if (!wrong.empty()) return wrong;
  const std::vector<int> sliced = run(program, true, &wrong);
  ++counts_.programs;
  counts_.steps += program.steps.size();
  for (std::size_t i = 0; i < program.steps.size() && wrong.empty(); ++i) {
    const bool refused = sliced[i] == 2 && bare[i] == 0;
    const bool left_out = sliced[i] == kRefusedBefore;
    counts_.granted += sliced[i] == 0 ? 1 : 0;
    counts_.refused += refused ? 1 : 0;
    counts_.left_out += left_out ? 1 : 0;
    if (sliced[i] == bare[i] || (!program.all_fits && (refused || left_out))) continue;
    wrong = describe(program.steps[i]) + ": " + std::to_string(bare[i]) + " without the library, " +
            std::to_string(sliced[i]) + " with it";
  }
  return wrong;
}

/// Removes steps that are not needed for a failure: first halves of the steps, finally single ones. A failure may
/// depend on chance, so each attempt is made three times.
Program ProgramsTest::shrink(Program program) {
  const auto fails = [&](const Program& smaller) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (!judge(smaller).empty()) return true;
    }
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(number_of("CARVE_SHRINK_SECONDS", 20));
  for (std::size_t length = program.steps.size() / 2; length > 0; length /= 2) {
    for (std::size_t at = 0; at < program.steps.size();) {
      if (std::chrono::steady_clock::now() > end) return program;
      Program smaller = program;
      const auto from = smaller.steps.begin() + static_cast<std::ptrdiff_t>(at);
      smaller.steps.erase(from, from + static_cast<std::ptrdiff_t>(std::min(length, program.steps.size() - at)));
      if (fails(smaller)) {
        program = smaller;
      } else {
        at += length;
      }
    }
  }
  return program;
}

TEST_F(ProgramsTest, RandomProgramsBehaveTheSameWithAndWithoutASlice) {
  const bool soak = getenv("CARVE_SOAK") != nullptr;
  const bool one = !soak && getenv("CARVE_SEED") != nullptr;
  const std::uint64_t first =
      number_of("CARVE_SEED", soak ? static_cast<std::uint64_t>(std::time(nullptr)) * 1000 : kFirstSeed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(number_of("CARVE_SOAK_SECONDS", 600));
  const std::uint64_t last = one ? first + 1 : first + kSeeds;
  for (std::uint64_t seed = first; soak ? std::chrono::steady_clock::now() < end : seed < last; ++seed) {
    const Program program = generate(seed);
    const std::string wrong = judge(program);
    if (wrong.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), wrong.c_str());
    std::fflush(stdout);
    const Program small = shrink(program);
    std::printf("%u processes, %u threads, %llu MiB on each card%s\n", small.processes, small.threads,
                static_cast<unsigned long long>(small.room / kMiB), small.all_fits ? ", nothing may be refused" : "");
    for (const Step& step : small.steps) std::printf("  %s\n", describe(step).c_str());
    FAIL() << "CARVE_SEED=" << seed << ": " << wrong;
  }
  std::printf("%llu programs from seed %llu, %llu steps; in a slice %llu granted, %llu refused, %llu left out "
              "for that\n",
              static_cast<unsigned long long>(counts_.programs), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(counts_.steps), static_cast<unsigned long long>(counts_.granted),
              static_cast<unsigned long long>(counts_.refused), static_cast<unsigned long long>(counts_.left_out));
  if (one) return;
  EXPECT_GE(counts_.refused * 50, counts_.granted) << "the programs are too small for a refusal";
  EXPECT_GE(counts_.granted, counts_.steps / 10) << "most steps have nothing to do";
}

}  // namespace
}  // namespace carve::isolation
