#include "app/control/state/policy_watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "codec/placement/placement_text.h"

namespace carve::control {
namespace {

using testing::HasSubstr;

std::string config_map(const std::string& conf, const std::string& label = "") {
  return R"({"metadata":{"name":"carve-placement","namespace":"carve-system","uid":"u","resourceVersion":"7",)"
         R"("labels":{"l":")" +
         label + R"("}},"data":{"placement.conf":")" + conf + R"("}})";
}

class PolicyWatcherTest : public testing::Test {
 protected:
  void put(const std::string& object) { sink_.change({KubeChange::Kind::kPut, object}); }
  [[nodiscard]] std::string now() const { return codec::to_text(*watcher_.rules()); }

  Log log_{[](std::string_view) {}};
  std::vector<codec::EventNote> events_;
  PolicyWatcher watcher_{kPolicies[0], log_, [this](codec::EventNote note) { events_.push_back(std::move(note)); }};
  KubeSink sink_ = watcher_.sink();
};

TEST_F(PolicyWatcherTest, UsesTheInstallationsPolicyWithoutAConfigMap) {
  EXPECT_FALSE(watcher_.answered());
  sink_.replace({});
  EXPECT_TRUE(watcher_.answered());
  EXPECT_EQ(now(), "cluster = binpack\n");
}

TEST_F(PolicyWatcherTest, AppliesAChangeImmediatelyAndKeepsAReadersRules) {
  sink_.replace({config_map(R"(cluster = spread\n)")});
  const auto before = watcher_.rules();
  put(config_map(R"(namespace.dev = card:spread\n)"));
  EXPECT_EQ(codec::to_text(*before), "cluster = spread\n");
  EXPECT_EQ(now(), "cluster = binpack\nnamespace.dev = card:spread\n")
      << "an omitted setting is the installation's again";
  sink_.change({KubeChange::Kind::kDeleted, config_map("")});
  EXPECT_EQ(now(), "cluster = binpack\n");
  EXPECT_EQ(watcher_.stats().changes, 3U);
}

TEST_F(PolicyWatcherTest, ReportsEachChangeAndReadsTheValidQuotasOfAnInvalidFirstFile) {
  std::vector<Quotas> seen;
  PolicyWatcher watcher(kPolicies[0], log_, {}, [&](const PlacementRules& rules) { seen.push_back(rules.quotas); });
  const auto sink = watcher.sink();
  const Quotas both = {{"a", {{"A100", 400}}}, {"b", {{"", 100}}}};
  sink.replace({config_map(R"(quota.a = A100:4\nquota.b = *:1\nquota.c = 7\ncluster = tight)")});
  EXPECT_THAT(seen, testing::ElementsAre(both)) << "a limit holds although another line is wrong";
  EXPECT_FALSE(watcher.stats().good);
  sink.change({KubeChange::Kind::kPut, config_map("quota.a = A100:5")});
  sink.change({KubeChange::Kind::kPut, config_map(R"(quota.a = A100:6\ncluster = tight)")});
  EXPECT_THAT(seen, testing::ElementsAre(both, Quotas{{"a", {{"A100", 500}}}})) << "an invalid file changes nothing";
  sink.change({KubeChange::Kind::kDeleted, config_map("")});
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_TRUE(seen.back().empty());
}

TEST_F(PolicyWatcherTest, KeepsTheLastValidRulesAndReportsAnInvalidTextOnce) {
  sink_.replace({config_map("cluster = spread")});
  put(config_map(R"(cluster = tight\nnamespace.a = spread)"));
  put(config_map(R"(cluster = tight\nnamespace.a = spread)", "another label"));
  EXPECT_EQ(now(), "cluster = spread\n");
  EXPECT_FALSE(watcher_.stats().good);
  EXPECT_EQ(watcher_.stats().refused, 1U);
  EXPECT_EQ(watcher_.stats().version, "7");
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_EQ(events_[0].kind + "/" + events_[0].namespace_name + "/" + events_[0].name + "/" + events_[0].uid,
            "ConfigMap/carve-system/carve-placement/u");
  EXPECT_THAT(events_[0].message, HasSubstr("placement.conf:1: cluster: \"tight\" is not a placement; legal:"));
  put(config_map("cluster = spread"));
  EXPECT_TRUE(watcher_.stats().good);
  put(config_map(R"(cluster = tight\nnamespace.a = spread)"));
  EXPECT_EQ(events_.size(), 2U) << "invalid again";
}

TEST_F(PolicyWatcherTest, TreatsAnInvalidFirstTextAsNone) {
  sink_.replace({config_map("cluster")});
  EXPECT_TRUE(watcher_.answered());
  EXPECT_EQ(now(), "cluster = binpack\n");
  EXPECT_EQ(events_.size(), 1U);
}

TEST_F(PolicyWatcherTest, ServesWithoutPermissionToReadTheConfigMap) {
  sink_.trouble({Code::kPermissionDenied, "no"});
  EXPECT_TRUE(watcher_.answered());
}

TEST_F(PolicyWatcherTest, FindsThePolicyForAPodOnANode) {
  put(config_map(R"(cluster = binpack\npool.a.nodes = tier=a\npool.a = card:spread)"));
  auto state = std::make_shared<NodeState>();
  state->labels = {{"tier", "a"}};
  const ClusterState cluster = {{"n1", state}};
  codec::PodAsk pod;
  pod.namespace_name = "default";
  EXPECT_EQ(card_policy(*watcher_.rules(), pod, cluster, "n1").name, "spread");
  EXPECT_EQ(card_policy(*watcher_.rules(), pod, cluster, "n2").name, "binpack");
  pod.annotations["elasticgpu.io/placement"] = "binpack";
  EXPECT_EQ(card_policy(*watcher_.rules(), pod, cluster, "n1").name, "binpack");
  pod.annotations["elasticgpu.io/placement"] = "nonsense";
  EXPECT_EQ(card_policy(*watcher_.rules(), pod, cluster, "n1").name, "spread")
      << "admission refuses it; here it has no effect";
}

}  // namespace
}  // namespace carve::control
