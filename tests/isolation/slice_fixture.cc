#include "tests/isolation/slice_fixture.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "preload/testing/sandbox.h"
#include "sim/testing/instance.h"

namespace carve::isolation {

namespace {

nlohmann::json simctl(const std::string& what) {
  const std::string command = sim::Instance::simctl_path() + " " + what;
  std::string text;
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) {
    return {};
  }
  char part[4096];
  for (std::size_t got = 0; (got = fread(part, 1, sizeof part, pipe)) > 0;) {
    text.append(part, got);
  }
  pclose(pipe);
  return nlohmann::json::parse(text, nullptr, false);
}

/// Starts the simulated driver and enters the sandbox, once. Returns "" or what failed.
std::string set_up() {
  static sim::Instance instance;
  const std::string problem = instance.start(profile_under_test());
  if (!problem.empty()) {
    return problem;
  }
  const std::string folder = sim::Instance::library_folder();
  return preload::testing::enter_sandbox(
      {library_under_test(), CARVE_NVML_LIBRARY, folder + "/libcuda.so.1", folder + "/libnvidia-ml.so.1"});
}

}  // namespace

std::string& profile_under_test() {
  static std::string profile = "t4x1";
  return profile;
}

std::string& library_under_test() {
  static std::string path = CARVE_LIBRARY;
  return path;
}

std::uint64_t driver_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

std::vector<double> delivered(pid_t pid, std::uint64_t since_ns, unsigned window_ms) {
  const std::uint64_t length = std::uint64_t{window_ms} * 1'000'000;
  const nlohmann::json rows =
      simctl("windows --ms " + std::to_string(window_ms) + " --since " + std::to_string(since_ns));
  // A window in which a process got nothing has no row for it: the windows are found from the rows of all processes.
  std::map<std::uint64_t, double> shares;
  for (const nlohmann::json& row : rows["windows"]) {
    const auto start = row["start_ns"].get<std::uint64_t>();
    if (start >= since_ns && start + length <= driver_now_ns()) {
      const auto got = static_cast<double>(row["gpu_ns"].get<std::uint64_t>());
      shares[start] += row["pid"].get<pid_t>() == pid ? 100.0 * got / static_cast<double>(length) : 0.0;
    }
  }
  std::vector<double> out;
  for (const auto& [start, share] : shares) {
    out.push_back(share);
  }
  return out;
}

std::vector<std::string> card_uuids() {
  std::vector<std::string> uuids;
  const nlohmann::json cards = simctl("cards");
  for (const nlohmann::json& row : cards["cards"]) {
    uuids.push_back(row["uuid"].get<std::string>());
  }
  return uuids;
}

Truth truth_of_group(const std::string& group, int card) {
  Truth truth;
  const nlohmann::json account = simctl("groups");
  for (const nlohmann::json& row : account["groups"]) {
    if ((!group.empty() && row["cgroup"].get<std::string>() != group) ||
        (card >= 0 && row["card"].get<int>() != card)) {
      continue;
    }
    truth.explicit_bytes += row["explicit_bytes"].get<std::uint64_t>();
    truth.explicit_high += row["explicit_high_bytes"].get<std::uint64_t>();
    truth.context_bytes += row["context_bytes"].get<std::uint64_t>();
    truth.alive += row["processes"].get<int>();
  }
  return truth;
}

Truth truth_of_process(pid_t pid, int card) {
  Truth truth;
  const nlohmann::json account = simctl("account");
  for (const nlohmann::json& row : account["processes"]) {
    if (row["pid"].get<pid_t>() == pid && (card < 0 || row["card"].get<int>() == card)) {
      truth.explicit_bytes += row["explicit_bytes"].get<std::uint64_t>();
      truth.explicit_high += row["explicit_high_bytes"].get<std::uint64_t>();
      truth.context_bytes += row["context_bytes"].get<std::uint64_t>();
      truth.alive += row["alive"].get<bool>() ? 1 : 0;
    }
  }
  return truth;
}

ControlGroup::ControlGroup(const std::string& name) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" - cgroup2 ") == std::string::npos) {
      continue;
    }
    std::istringstream words(line);
    std::string at;
    for (int i = 0; i < 5; ++i) {
      words >> at;
    }
    path_ = "/" + name + "-" + std::to_string(getpid());
    if (mkdir((at + path_).c_str(), 0755) == 0) {
      folder_ = at + path_;
      return;
    }
  }
}

ControlGroup::~ControlGroup() {
  if (usable()) {
    rmdir(folder_.c_str());
  }
}

void ControlGroup::enter() const { std::ofstream(folder_ + "/cgroup.procs") << getpid() << std::endl; }

void SliceTest::SetUp() {
  if (geteuid() != 0) {
    GTEST_SKIP() << "needs root for mount namespaces";
  }
  static const std::string problem = set_up();
  ASSERT_EQ(problem, "");
}

void SliceTest::start_slice(std::uint64_t limit, std::uint32_t compute) {
  std::vector<preload::testing::CardSpec> cards;
  for (const std::string& uuid : card_uuids()) {
    preload::testing::CardSpec card;
    card.uuid = uuid;
    card.memory_limit = limit;
    card.compute_limit = compute;
    card.context_bytes = 105 * kMiB;
    cards.push_back(card);
  }
  slice_ = std::make_unique<preload::testing::SliceServer>("/run/carve/slices/test", cards);
}

pid_t SliceTest::fork_quietly() {
  const auto quiet = slice_ != nullptr ? slice_->quiet() : std::unique_lock<std::mutex>();
  return fork();
}

int SliceTest::in_child(const std::function<int()>& body, pid_t* pid) {
  std::fflush(nullptr);
  const pid_t child = fork_quietly();
  if (child < 0) return -1;
  if (child == 0) {
    _exit(body());
  }
  if (pid != nullptr) {
    *pid = child;
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace carve::isolation
