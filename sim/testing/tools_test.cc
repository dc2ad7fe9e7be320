#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "sim/testing/child.h"
#include "sim/testing/gtest_instance.h"

// The simulator's programs as a person or a script uses them: JSON output, clear errors, shares as in the table.
namespace carve::sim {
namespace {

const auto* const kSim = ::testing::AddGlobalTestEnvironment(new InstanceEnvironment("t4x1"));

struct Output {
  int code = -1;
  std::string text;  // both streams
};

Output run(const std::string& command) {
  Output out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    out.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

std::string program(const std::string& name) {
  const std::string ctl = Instance::simctl_path();
  return ctl.substr(0, ctl.rfind('/') + 1) + name;
}

TEST(Tools, BadInputIsNamedAndExitsWith2) {
  for (const char* bad :
       {"carve-simd", "carve-simd --profile h300x2", "carve-simd --profile t4x17",
        "carve-simd --nonsense", "carve-simd --profile t4 --ready-fd x", "carve-simctl",
        "carve-simctl nonsense", "carve-simctl windows --ms", "carve-simctl windows --ms 5",
        "carve-simctl windows --ms ten", "carve-simctl account cards", "carve-sim-run t4x1",
        "carve-sim-run h300 -- true", "carve-sample-spin --depth 0",
        "carve-sample-spin --memory 1Xi", "carve-sample-alloc --step 0"}) {
    const Output out = run(program(bad));
    EXPECT_EQ(out.code, 2) << bad << "\n" << out.text;
    EXPECT_NE(out.text.find("carve-s"), std::string::npos) << bad;
  }
  EXPECT_NE(run(program("carve-simd --profile h300x2")).text.find("t4, l4, a100, h100, h200"),
            std::string::npos);
  const Output second = run(program("carve-simd --profile t4x1"));
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.text.find("Address already in use"), std::string::npos) << second.text;
}

TEST(Tools, TwoProcessesGetEqualTimeAndSwitchesCostWhatTheTableSays) {
  const std::string spin = program("carve-sample-spin --seconds 2.2 --kernel-us 500 --depth 512");
  const Output out = run("(" + spin + " & " + spin + " & wait)");
  ASSERT_EQ(out.code, 0) << out.text;
  const auto windows =
      nlohmann::json::parse(run(program("carve-simctl windows --ms 500")).text)["windows"];
  // A process's first and last windows are partial. Only windows in which both processes had work throughout are
  // judged.
  int judged = 0;
  for (const auto& window : windows) {
    double sum = 0;
    for (const auto& other : windows)
      if (other["start_ns"] == window["start_ns"]) sum += std::stod(other["percent"].dump());
    if (sum < 90.9 || sum > 91.2) continue;
    EXPECT_NEAR(window["percent"].get<double>(), 100.0 * 1024 / 1124 / 2, 0.5);
    ++judged;
  }
  EXPECT_GE(judged, 4) << windows.dump(1);
}

TEST(Tools, AccountCardsAndGroupsAreJsonAndAgree) {
  const Output alloc = run(program("carve-sample-alloc --step 64Mi --target 1Gi"));
  ASSERT_EQ(alloc.code, 0) << alloc.text;
  EXPECT_EQ(nlohmann::json::parse(alloc.text)["bytes"], 1ULL << 30);
  const auto account = nlohmann::json::parse(run(program("carve-simctl account -o json")).text);
  const auto cards = nlohmann::json::parse(run(program("carve-simctl cards")).text);
  const auto groups = nlohmann::json::parse(run(program("carve-simctl groups")).text);
  bool found = false;
  for (const auto& process : account["processes"]) {
    EXPECT_EQ(process["alive"], false);
    found = found || process["explicit_high_bytes"] == 1ULL << 30;
  }
  EXPECT_TRUE(found) << account.dump(1);
  EXPECT_EQ(cards["cards"][0]["used_bytes"], 0);
  EXPECT_EQ(cards["cards"][0]["model"], "Tesla T4 (SIMULATED)");
  EXPECT_GE(groups["groups"][0]["explicit_high_bytes"].get<std::uint64_t>(), 1ULL << 30);
  const Output full = run(program("carve-sample-alloc --step 1Gi --target 32Gi"));
  EXPECT_EQ(full.code, 3) << full.text;
  EXPECT_EQ(nlohmann::json::parse(full.text)["out_of_memory"], true);
}

TEST(Tools, RunReturnsTheCommandsExitCode) {
  EXPECT_EQ(run(program("carve-sim-run h200x1 -- sh -c 'exit 7'")).code, 7);
  EXPECT_EQ(run(program("carve-sim-run h200x1 -- sh -c 'kill -9 $$'")).code, 128 + 9);
  EXPECT_EQ(run(program("carve-sim-run h200x1 /nonexistent/program")).code, 127);
}

}  // namespace
}  // namespace carve::sim
