#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <thread>

#include "app/plugins/testing/fake_node_slices.h"
#include "app/node/testing/reported_node.h"
#include "codec/node/plugin_conflict.h"

// Every condition of a Node, from the source of its trouble to the API server: it becomes True, with cause and fix, and
// False again.
namespace carve::node {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kClass = "/apis/resource.k8s.io/v1/deviceclasses/c";

/// Slices with troubles that a test sets.
class TroubledSlices final : public NodeSlices {
 public:
  Result<std::string> promise_device() override { return real.promise_device(); }
  Result<Prepared> prepare(const PrepareRequest& request) override { return real.prepare(request); }
  void divide_by(const SharePolicies& policies) override { real.divide_by(policies); }
  Result<void> unprepare(const Owner& owner) override { return real.unprepare(owner); }
  [[nodiscard]] std::vector<Slice> held() const override { return real.held(); }
  [[nodiscard]] GpuInventory cards() const override { return real.cards(); }
  [[nodiscard]] NodeTroubles troubles() const override { return now; }
  plugins::FakeNodeSlices real{plugins::some_cards(1)};
  NodeTroubles now;
};

struct World : ReportedNode {
  TroubledSlices slices;
  std::string not_published;
  std::map<std::string, std::size_t> plugins;
  NodeReport report{"n1", [this] {
                      auto one = world(slices);
                      one.totals = {"elasticgpu.io/gpu-core"};
                      one.not_published = [this] { return not_published; };
                      one.other_plugins = [this] { return plugins; };
                      return one;
                    }()};
  std::jthread node_watch;
  std::jthread gpu_watch;

  World() {
    node_watch = std::jthread([this](const std::stop_token& stop) { report.run_node_watch(stop); });
    gpu_watch = std::jthread([this](const std::stop_token& stop) { report.run_gpu_watch(stop); });
    EXPECT_TRUE(kube.wait_watches(2, 5s));
  }
  /// Steps long enough for the checks with the longest interval.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      clock.advance(200ms);
      report.step();
      EXPECT_TRUE(kube.wait_watches(2, 5s));
    }
  }
  void pod(const std::string& waiting) {
    pods.change({KubeChange::Kind::kPut,
                 R"({"metadata":{"namespace":"s","name":"p","uid":"p"},"spec":{"nodeName":"n1"},"status":{"phase":)"
                 R"("Pending","containerStatuses":[{"name":"main","state":{)" +
                     waiting + "}}]}}"});
  }
};

struct Case {
  const char* type;
  const char* cause;  // a part of the message
  std::function<void(World&)> trouble;
  std::function<void(World&)> remedy;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"RuntimeWithoutCDI", "enable_cdi", [](World& w) { w.runtime.facts.cdi = false; },
       [](World& w) { w.runtime.facts.cdi = true; }},
      {"GPUDriverAbsent", "no libnvidia-ml",
       [](World& w) { w.slices.now.gpu = GpuState::kAbsent, w.slices.now.gpu_reason = "no libnvidia-ml"; },
       [](World& w) { w.slices.now = {}; }},
      {"GPUDriverHanging", "did not answer",
       [](World& w) { w.slices.now.gpu = GpuState::kHanging, w.slices.now.gpu_reason = "NVML did not answer"; },
       [](World& w) { w.slices.now = {}; }},
      {"GPUCardUnhealthy", "XID 79", [](World& w) { w.slices.real.set_health(0, {false, "XID 79"}); },
       [](World& w) { w.slices.real.set_health(0, {}); }},
      {"GPUArbiterAway", "no answer", [](World& w) { w.slices.now.arbiter = "no answer"; },
       [](World& w) { w.slices.now = {}; }},
      {"GPUJournalFailing", "no space", [](World& w) { w.slices.now.journal = "no space left"; },
       [](World& w) { w.slices.now = {}; }},
      {"GPULibraryMissing", "libcarve.so", [](World& w) { w.slices.now.library = "libcarve.so: not found"; },
       [](World& w) { w.slices.now = {}; }},
      {"GPUSlicesNotPublished", "forbidden", [](World& w) { w.not_published = "ResourceSlice: forbidden"; },
       [](World& w) { w.not_published.clear(); }},
      {"GPUStartsRefused", "no record", [](World& w) { w.notices.refused("p", "pod s/p: no record. create it again"); },
       [](World& w) { w.notices.settled("p"); }},
      {"GPUDevicesUnresolved", "s/p/main",
       [](World& w) {
         w.pod(R"("waiting":{"reason":"CreateContainerError","message":"CDI device injection failed: )"
               R"(unresolvable CDI devices carve.elasticgpu.io/slice=s-1"})");
       },
       [](World& w) { w.pod(R"("running":{})"); }},
      {"GPUTotalsWithheld", "elasticgpu.io/gpu-core",
       [](World& w) {
         w.kube.put(kClass, R"({"metadata":{"name":"c"},"spec":{"extendedResourceName":"elasticgpu.io/gpu-core"}})");
       },
       [](World& w) { w.kube.erase(kClass); }},
      {"ConflictingPlugin", "elasticgpu.io/gpu-core", [](World& w) { w.plugins = {{"elasticgpu.io/gpu-core", 8}}; },
       [](World& w) { w.plugins.clear(); }},
  };
  return all;
}

TEST(Conditions, EachBecomesTrueAloneWithCauseAndFixAndFalseAgain) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one.type);
    World world;
    world.settle();
    EXPECT_FALSE(world.said().empty());
    for (const auto& [type, condition] : world.said()) EXPECT_FALSE(condition.on) << type;
    one.trouble(world);
    world.settle();
    int on = 0;
    for (const auto& [type, condition] : world.said()) on += condition.on ? 1 : 0;
    EXPECT_EQ(on, 1);
    const auto told = world.said()[one.type];
    EXPECT_TRUE(told.on);
    EXPECT_THAT(told.message, HasSubstr(one.cause));
    EXPECT_THAT(told.message, ::testing::ContainsRegex("[;:,.] [^ ]+ [^ ]+ [^ ]+"));  // followed by a fix
    EXPECT_NE(told.reason, "");
    one.remedy(world);
    world.settle();
    ASSERT_TRUE(world.said().contains(one.type));
    EXPECT_FALSE(world.said()[one.type].on);
  }
}

/// At its start the agent may be unable to read DeviceClasses: a permission is missing, or the API server does not
/// answer.
TEST(Conditions, SetNoTotalBeforeTheDeviceClassesAreKnown) {
  World world;
  const auto total = [&] {
    return world.kube.object(World::kPath)->find("elasticgpu.io/gpu-core") != std::string::npos;
  };
  world.kube.put(kClass, R"({"metadata":{"name":"c"},"spec":{"extendedResourceName":"elasticgpu.io/gpu-core"}})");
  world.kube.fail_next({.verb = "list", .path = "deviceclasses", .code = Code::kPermissionDenied, .times = 1});
  world.report.step();
  world.clock.advance(5s);
  world.report.step();
  EXPECT_FALSE(total());
  EXPECT_TRUE(world.said()["GPUTotalsWithheld"].on);
  EXPECT_THAT(world.said()["GPUTotalsWithheld"].message, HasSubstr("is not known"));
  world.kube.erase(kClass);
  world.settle();
  EXPECT_TRUE(total());
  EXPECT_FALSE(world.said()["GPUTotalsWithheld"].on);
  world.kube.fail_next({.verb = "list", .path = "deviceclasses", .code = Code::kPermissionDenied, .times = 1});
  world.settle();
  EXPECT_TRUE(total()) << "the known DeviceClasses stay";
}

/// dialects.nvidia was slots and has changed. An agent knows the totals that agents set only from the Node.
TEST(Conditions, WithdrawATotalOfPreviousSettingsUnlessAPluginServesTheName) {
  const auto changed = [](World& world, const char* set) {
    world.kube.put(World::kPath, std::string(R"({"metadata":{"name":"n1","uid":"u","annotations":{)") + set +
                                     R"(}},"status":{"conditions":[],"capacity":{"nvidia.com/gpu":"4"}}})");
    EXPECT_TRUE(world.kube.wait_watches(2, 5s));
    world.settle();
    return world.kube.object(World::kPath)->find(R"("nvidia.com/gpu":)") != std::string::npos;
  };
  constexpr const char* kOurs = R"("elasticgpu.io/totals-set":"nvidia.com/gpu")";
  World ours;
  EXPECT_FALSE(changed(ours, kOurs));
  EXPECT_THAT(*ours.kube.object(World::kPath), HasSubstr(R"("elasticgpu.io/totals-set":"elasticgpu.io/gpu-core")"));
  World somebodys;
  EXPECT_TRUE(changed(somebodys, "")) << "no agent set it";
  World taken_over;
  taken_over.plugins = {{"nvidia.com/gpu", 4}};
  EXPECT_TRUE(changed(taken_over, kOurs));
}

/// A kubelet keeps the name of a removed plugin for five minutes, without devices, and fails pods that request it.
TEST(Conditions, ReportAConflictWhileTheKubeletKeepsTheNameOfARemovedPlugin) {
  World world;
  world.plugins = {{"elasticgpu.io/gpu-core", 0}};
  world.settle();
  EXPECT_TRUE(world.said()["ConflictingPlugin"].on);
  EXPECT_EQ(codec::names_in_conflict(world.said()["ConflictingPlugin"].message),
            std::vector<std::string>{"elasticgpu.io/gpu-core"});
}

/// The API server refuses a type that the policy does not list. The table of this file must contain every type.
TEST(Conditions, AreTheSameInTheTableThePolicyAndTheAgent) {
  std::set<std::string> agents = {std::string(codec::kAgentLeaving)};  // tested in presence_test.cc
  for (const auto& one : conditions_of({})) agents.insert(one.type);
  std::set<std::string> table = {std::string(codec::kAgentLeaving)};
  for (const auto& one : cases()) table.insert(one.type);
  EXPECT_EQ(table, agents);
  std::ifstream file(CARVE_AGENT_POLICY);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto begin = text.find("- name: conditions");
  ASSERT_NE(begin, std::string::npos);
  const auto list = text.substr(begin, text.find("- name: totals") - begin);
  const std::regex quoted("'([A-Za-z]+)'");
  std::set<std::string> policy;
  for (auto at = std::sregex_iterator(list.begin(), list.end(), quoted); at != std::sregex_iterator(); ++at)
    policy.insert((*at)[1]);
  EXPECT_EQ(policy, agents);
}

}  // namespace
}  // namespace carve::node
