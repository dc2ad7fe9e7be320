#include "codec/placement/placement_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace carve::codec {
namespace {

using testing::HasSubstr;

const PolicyRow* const kPack = &kPolicies[0];
const PolicyRow* const kSpread = &kPolicies[1];
const NodePolicyRow* const kPackNode = &kNodePolicies[0];
const NodePolicyRow* const kSpreadNode = &kNodePolicies[1];

std::string error_of(std::string_view text) {
  const auto rules = parse_placement_rules(text);
  return rules ? "no error" : rules.error().what;
}

TEST(PlacementText, AChoiceIsOneWordOrOnePerRanking) {
  EXPECT_EQ(parse_policy_choice("spread").value(), (PolicyChoice{kSpreadNode, kSpread}));
  EXPECT_EQ(parse_policy_choice("node:spread").value(), (PolicyChoice{kSpreadNode, nullptr}));
  EXPECT_EQ(parse_policy_choice("card:binpack , node:spread").value(),
            (PolicyChoice{kSpreadNode, kPack}));
  for (const char* bad : {"", ",", "tight", "spread,binpack", "node:", "node:tight", "gpu:spread",
                          "node:spread,node:spread", "node=spread", "Spread"}) {
    const auto choice = parse_policy_choice(bad);
    ASSERT_FALSE(choice) << bad;
    EXPECT_THAT(choice.error().what, HasSubstr(std::string("\"") + bad +
                                               "\" is not a placement; legal: binpack, spread"));
  }
}

TEST(PlacementText, AFileSetsClusterPoolsAndNamespaces) {
  const auto rules = parse_placement_rules(
      "# whole cards stay whole\n"
      "cluster = binpack\n\n"
      "pool.inference.nodes = tier=inference, example.com/zone=a   # both\n"
      "pool.inference = node:spread\r\n"
      "pool.rest = card:spread\n"
      "pool.rest.nodes = gpu=\n"
      "namespace.ml-dev = node:spread,card:binpack");
  ASSERT_TRUE(rules) << rules.error().what;
  EXPECT_EQ(
      *rules,
      (PlacementRules{
          {kPackNode, kPack},
          {{"inference", {{"example.com/zone", "a"}, {"tier", "inference"}}, {kSpreadNode, nullptr}},
           {"rest", {{"gpu", ""}}, {nullptr, kSpread}}},
          {{"ml-dev", {kSpreadNode, kPack}}}}));
  EXPECT_EQ(parse_placement_rules(to_text(*rules)).value(), *rules);
  EXPECT_EQ(parse_placement_rules("").value(), PlacementRules{});
}

TEST(PlacementText, QuotasOfANamespaceAreCardsByModel) {
  const auto rules = parse_placement_rules("quota.team-a = A100:4, NVIDIA H200:0.5, *:12.25\nquota.team-b = T4:0\n");
  ASSERT_TRUE(rules) << rules.error().what;
  EXPECT_EQ(rules->quotas,
            (Quotas{{"team-a", {{"A100", 400}, {"NVIDIA H200", 50}, {"", 1225}}}, {"team-b", {{"T4", 0}}}}));
  EXPECT_EQ(to_text(*rules), "quota.team-a = A100:4,NVIDIA H200:0.5,*:12.25\nquota.team-b = T4:0\n");
  EXPECT_EQ(parse_placement_rules(to_text(*rules)).value(), *rules);
  for (const std::string bad : {"A100", "A100:", ":4", "A100:4.", "A100:.5", "A100:4.125", "A100:-1", "A100:1e3",
                                "A100:1000001", "A100:99999999999999999999", "A100:4,A100:5", "*:1,*:2",
                                "A100:4,,T4:1", "!A100:4", "A100=4"}) {
    EXPECT_THAT(error_of("quota.team-a = " + bad),
                HasSubstr("placement.conf:1: quota.team-a: \"" + bad + "\" is not a quota; legal: MODEL:CARDS"));
  }
  EXPECT_THAT(error_of("quota.team-a ="), HasSubstr("the quota is missing"));
  EXPECT_THAT(error_of("quota.Team = A100:4"), HasSubstr("unknown key; legal: cluster, namespace.NAME"));
  EXPECT_THAT(error_of("quota.a = A100:4\nquota.a = A100:5"),
              HasSubstr("placement.conf:2: quota.a: the key is set twice"));
}

TEST(PlacementText, TheQuotasOfValidLinesApplyBesideFaultyOnes) {
  EXPECT_EQ(quotas_of_valid_lines("quota.a = A100:4\nquota.b = A100\nwrong\nquota.c = *:1\n"),
            (Quotas{{"a", {{"A100", 400}}}, {"c", {{"", 100}}}}));
}

TEST(PlacementText, AllFaultyLinesAreReportedWithKeyValueAndLegalValues) {
  const auto error = error_of(
      "cluster = tight\n"
      "cluster = spread\n"
      "namespaces.dev = spread\n"
      "pool.a.nodes = tier\n"
      "pool.a = spread\n"
      "what is this\n");
  EXPECT_THAT(
      error,
      HasSubstr(
          "\n  placement.conf:1: cluster: \"tight\" is not a placement; legal: binpack, spread"));
  EXPECT_THAT(error, HasSubstr("\n  placement.conf:2: cluster: the key is set twice"));
  EXPECT_THAT(
      error,
      HasSubstr(
          "\n  placement.conf:3: namespaces.dev: unknown key; legal: cluster, namespace.NAME"));
  EXPECT_THAT(error, HasSubstr("\n  placement.conf:4: pool.a.nodes: \"tier\" is not a set of node "
                               "labels; legal: LABEL="));
  EXPECT_THAT(error, HasSubstr("\n  placement.conf:6: what is this: not of the form key = value"));
  EXPECT_THAT(error, testing::Not(HasSubstr("placement.conf:5")));
}

TEST(PlacementText, AnIncompletePoolIsRefused) {
  EXPECT_THAT(error_of("pool.a = spread"), HasSubstr("pool.a.nodes: is missing"));
  EXPECT_THAT(error_of("pool.a.nodes = x=y"), HasSubstr("pool.a: is missing"));
  EXPECT_THAT(error_of("pool.a.nodes =\npool.a = spread"), HasSubstr("the label is missing"));
  for (const char* bad :
       {"pool. = spread", "pool.a. = spread", "pool.a.node = spread", "pool.a.nodes.b = x=y",
        "namespace. = spread", "namespace.a.b = spread", "namespace.A = spread", "= spread"})
    EXPECT_THAT(error_of(bad), HasSubstr("unknown key")) << bad;
  EXPECT_THAT(error_of("pool.a = spread\npool.a.nodes = x=1,x=2"), HasSubstr("each label once"));
}

TEST(PlacementText, TheNumberOfPoolsIsLimited) {
  std::string text;
  for (int i = 0; i < 101; ++i)
    text +=
        "pool.p" + std::to_string(i) + " = spread\npool.p" + std::to_string(i) + ".nodes = a=b\n";
  EXPECT_THAT(error_of(text), HasSubstr("placement.conf:201: pool.p100: more than 100 pools"));
}

TEST(PlacementText, APodSetsItsPreferenceInAnAnnotation) {
  PodAsk pod;
  EXPECT_EQ(placement_of(pod).value(), PolicyChoice{});
  pod.annotations["elasticgpu.io/placement"] = "card:spread";
  EXPECT_EQ(placement_of(pod).value(), (PolicyChoice{nullptr, kSpread}));
  pod.annotations["elasticgpu.io/placement"] = "best";
  EXPECT_THAT(
      placement_of(pod).error().what,
      testing::StartsWith(
          "annotation elasticgpu.io/placement: \"best\" is not a placement; legal: binpack"));
}

TEST(PlacementText, TheAnnotationsOfHamiRankNodesAndCards) {
  PodAsk pod;
  pod.annotations["hami.io/node-scheduler-policy"] = "spread";
  EXPECT_EQ(placement_of(pod).value(), (PolicyChoice{kSpreadNode, nullptr}));
  pod.annotations["hami.io/gpu-scheduler-policy"] = "numa, binpack,spread";
  EXPECT_EQ(placement_of(pod).value(), (PolicyChoice{kSpreadNode, kPack})) << "the first word that ranks applies";
  pod.annotations["hami.io/gpu-scheduler-policy"] = "mutex,topology-aware";
  EXPECT_EQ(placement_of(pod).value(), (PolicyChoice{kSpreadNode, nullptr}));
  pod.annotations["elasticgpu.io/placement"] = "node:binpack";
  pod.annotations["hami.io/gpu-scheduler-policy"] = "spread";
  EXPECT_EQ(placement_of(pod).value(), (PolicyChoice{kPackNode, kSpread})) << "Carve's own annotation overrules";
  pod.annotations["hami.io/gpu-scheduler-policy"] = "binpak";
  EXPECT_EQ(placement_of(pod).error().what,
            "annotation hami.io/gpu-scheduler-policy: \"binpak\" is not a policy; legal: binpack, spread, numa, mutex, "
            "topology-aware");
  pod.annotations["hami.io/gpu-scheduler-policy"] = "";
  pod.annotations["hami.io/node-scheduler-policy"] = "numa";
  EXPECT_EQ(placement_of(pod).error().what,
            "annotation hami.io/node-scheduler-policy: \"numa\" is not a policy; legal: binpack, spread");
}

TEST(PlacementText, NamesAndLabelsHaveTheLengthLimitsOfKubernetes) {
  const auto fits = [](const std::string& text) { return parse_placement_rules(text).has_value(); };
  const auto name = [](std::size_t size) { return std::string(size, 'n'); };
  EXPECT_TRUE(fits("namespace." + name(63) + " = spread"));
  EXPECT_FALSE(fits("namespace." + name(64) + " = spread"));
  const auto pool = [&](const std::string& called, const std::string& labels) {
    return fits("pool." + called + " = spread\npool." + called + ".nodes = " + labels);
  };
  EXPECT_TRUE(pool(name(63), "a=b"));
  EXPECT_FALSE(pool(name(64), "a=b"));
  EXPECT_TRUE(pool("p", name(317) + "=" + name(63)));
  EXPECT_FALSE(pool("p", name(318) + "=b"));
  EXPECT_FALSE(pool("p", "a=" + name(64)));
  for (int code = 0x21; code < 0x7f; ++code) {  // except for the characters that separate words, lines and lists
    const char c = static_cast<char>(code);
    if (std::string_view("#,=").find(c) != std::string_view::npos) continue;
    const std::string one(1, c);
    const bool small = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool letter = small || (c >= 'A' && c <= 'Z');
    EXPECT_EQ(fits("namespace.a" + one + " = spread"), small || c == '-') << one;
    EXPECT_EQ(pool("p", "a" + one + "=b"), letter || std::string_view("-_./").find(c) != std::string_view::npos) << one;
    EXPECT_EQ(pool("p", "a=b" + one), letter || std::string_view("-_.").find(c) != std::string_view::npos) << one;
  }
}

TEST(PlacementText, AHundredPoolsAreLegal) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "pool.p" + std::to_string(i) + " = spread\npool.p" + std::to_string(i) + ".nodes = a=b\n";
  const auto rules = parse_placement_rules(text);
  ASSERT_TRUE(rules) << rules.error().what;
  EXPECT_EQ(rules->pools.size(), 100U);
}

TEST(PlacementText, AFaultyValueIsQuotedUpToALimit) {
  const std::string longest(200, 'z');
  const auto quoted = [](const std::string& text) {
    const std::string what = error_of(text);
    return std::count(what.begin(), what.end(), 'z');
  };
  EXPECT_EQ(quoted("cluster = " + longest), 64);
  EXPECT_EQ(quoted("pool.a = spread\npool.a.nodes = " + longest), 64);
  EXPECT_EQ(quoted(longest + " = spread"), 128);
}

}  // namespace
}  // namespace carve::codec
