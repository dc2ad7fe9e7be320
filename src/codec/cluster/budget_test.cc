#include "codec/cluster/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/cluster/eviction.h"

namespace carve::codec {
namespace {

Budget budget(const std::string& selector, const std::string& allowed = "1") {
  const auto read = parse_budget(R"({"metadata":{"name":"b","namespace":"s"},"spec":{"selector":)" + selector +
                                 R"(},"status":{"disruptionsAllowed":)" + allowed + "}}");
  EXPECT_TRUE(read) << read.error().what;
  return *read;
}

PodAsk pod(const std::map<std::string, std::string>& labels, const std::string& namespace_name = "s") {
  PodAsk made;
  made.namespace_name = namespace_name;
  made.labels = labels;
  return made;
}

TEST(Budget, CoversThePodsThatItsSelectorMatches) {
  const auto both = budget(R"({"matchLabels":{"app":"x"},"matchExpressions":[{"key":"tier","operator":"NotIn",)"
                           R"("values":["test"]}]})",
                           "2");
  EXPECT_EQ(both.allowed, 2);
  EXPECT_TRUE(covers(both, pod({{"app", "x"}})));
  EXPECT_FALSE(covers(both, pod({{"app", "x"}, {"tier", "test"}})));
  EXPECT_FALSE(covers(both, pod({{"app", "y"}})));
  EXPECT_FALSE(covers(both, pod({{"app", "x"}}, "other")));
  const auto rule = [](const std::string& word, const std::string& values = "[]") {
    return budget(R"({"matchExpressions":[{"key":"k","operator":")" + word + R"(","values":)" + values + "}]}");
  };
  EXPECT_TRUE(covers(rule("In", R"(["a","b"])"), pod({{"k", "b"}})));
  EXPECT_FALSE(covers(rule("In", R"(["a","b"])"), pod({{"k", "c"}})));
  EXPECT_FALSE(covers(rule("In", R"(["a"])"), pod({})));
  EXPECT_FALSE(covers(rule("NotIn", R"(["a"])"), pod({{"k", "a"}})));
  EXPECT_TRUE(covers(rule("NotIn", R"(["a"])"), pod({{"k", "b"}})));
  EXPECT_TRUE(covers(rule("NotIn", R"(["a"])"), pod({})));
  EXPECT_TRUE(covers(rule("DoesNotExist"), pod({})));
  EXPECT_TRUE(covers(rule("Exists"), pod({{"k", ""}})));
  EXPECT_FALSE(covers(rule("Exists"), pod({})));
  EXPECT_FALSE(covers(rule("DoesNotExist"), pod({{"k", ""}})));
  EXPECT_TRUE(covers(rule("Unheard"), pod({}))) << "an unknown operator covers the pod";
}

TEST(Budget, AnEmptySelectorCoversAllPodsAndAMissingOneNone) {
  EXPECT_TRUE(covers(budget("{}"), pod({})));
  EXPECT_FALSE(covers(budget("null"), pod({})));
  const auto fresh = parse_budget(R"({"metadata":{"name":"b"},"spec":{}})");
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->allowed, 0);
  EXPECT_FALSE(parse_budget("{}"));
  EXPECT_FALSE(parse_budget("["));
}

TEST(Eviction, NamesExactlyThisPod) {
  ClusterPod pod;
  pod.ask.namespace_name = "s";
  pod.ask.name = "p";
  pod.ask.uid = "u-1";
  EXPECT_EQ(eviction_body(pod, false),
            R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p","namespace":"s"},)"
            R"("deleteOptions":{"preconditions":{"uid":"u-1"}}})");
  EXPECT_THAT(eviction_body(pod, true), testing::HasSubstr(R"("dryRun":["All"])"));
  EXPECT_EQ(nomination_patch(pod, "n1"), R"({"metadata":{"uid":"u-1"},"status":{"nominatedNodeName":"n1"}})");
  EXPECT_EQ(nomination_patch(pod, ""), R"({"metadata":{"uid":"u-1"},"status":{"nominatedNodeName":null}})");
}

}  // namespace
}  // namespace carve::codec
