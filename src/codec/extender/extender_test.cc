#include "codec/extender/extender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kPod[] =
    R"({"metadata":{"name":"p","namespace":"s","uid":"u-1"},"spec":{"containers":[{"name":"c"}]}})";

std::string call(const std::string& rest) { return std::string(R"({"Pod":)") + kPod + rest + "}"; }

TEST(Extender, KeysAreReadInAnyCaseAndWrittenAsGoNames) {
  for (const char* names : {R"(,"NodeNames":["b","a"],"Nodes":null)", R"(,"nodenames":["b","a"])",
                            R"(,"nodeNames":["b","a"])"}) {
    const std::string text = call(names);  // its names refer to this text
    const auto args = parse_extender_args(text);
    ASSERT_TRUE(args) << args.error().what;
    EXPECT_TRUE(args->cache_capable);
    EXPECT_THAT(args->names, ElementsAre("b", "a"));
    EXPECT_EQ(args->pod.uid, "u-1");
    EXPECT_EQ(to_json(FilterAnswer{{"a"}, {{"b", "full"}}, {}, ""}, *args),
              R"({"NodeNames":["a"],"Nodes":null,"FailedNodes":{"b":"full"},)"
              R"("FailedAndUnresolvableNodes":{},"Error":""})");
    EXPECT_THAT(to_json(FilterAnswer{{"b", "a"}, {}, {}, ""}, *args), HasSubstr(R"({"NodeNames":["b","a"],)"));
  }
}

TEST(Extender, WholeNodesAreReturnedWhole) {
  const std::string text =
      call(R"(,"Nodes":{"items":[{"metadata":{"name":"a","labels":{"x":"1"}}},{"metadata":{"name":"b"}}]})");
  const auto args = parse_extender_args(text);
  ASSERT_TRUE(args) << args.error().what;
  EXPECT_FALSE(args->cache_capable);
  EXPECT_THAT(args->names, ElementsAre("a", "b"));
  EXPECT_THAT(to_json(FilterAnswer{{"a"}, {}, {{"b", "no card"}}, ""}, *args),
              HasSubstr(R"("items":[{"metadata":{"name":"a","labels":{"x":"1"}}}])"));
  EXPECT_EQ(to_json(FilterAnswer{{"b", "x", "a"}, {}, {}, "e"}, *args),
            R"({"NodeNames":null,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"b"}},)"
            R"({"metadata":{"name":"a","labels":{"x":"1"}}}]},"FailedNodes":{},)"
            R"("FailedAndUnresolvableNodes":{},"Error":"e"})");
}

TEST(Extender, TextsAreEscaped) {
  const std::string text = call(R"(,"NodeNames":["a"])");
  const auto args = parse_extender_args(text);
  EXPECT_EQ(to_json(FilterAnswer{{"q\"\\"}, {{"b", "line\nbreak"}, {"c", "x"}}, {{"d", "…"}}, "\x01"}, *args),
            R"({"NodeNames":["q\"\\"],"Nodes":null,"FailedNodes":{"b":"line\nbreak","c":"x"},)"
            R"("FailedAndUnresolvableNodes":{"d":"…"},"Error":"\u0001"})");
}

TEST(Extender, AFaultyCallIsRefusedWithTheMissingField) {
  EXPECT_FALSE(parse_extender_args("{"));
  EXPECT_FALSE(parse_extender_args(R"({"NodeNames":["a"]})"));
  EXPECT_FALSE(parse_extender_args(call("")));
  EXPECT_FALSE(parse_extender_args(call(R"(,"NodeNames":[1])")));
  EXPECT_FALSE(parse_extender_args(R"({"Pod":{"metadata":{"name":"p"}},"NodeNames":[]})"));
  EXPECT_THAT(parse_binding_args(R"({"PodName":"p","PodNamespace":"s","Node":"n"})").error().what,
              HasSubstr("PodUID"));
}

TEST(Extender, APodsPriorityAndNominationAreRead) {
  const std::string pod = R"({"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"priority":)";
  for (const std::string nodes : {R"("NodeNames":["a"])", R"("Nodes":{"items":[{"metadata":{"name":"a"}}]})"}) {
    const std::string text = pod + R"(7},"status":{"nominatedNodeName":"n"}},)" + nodes + "}";
    const auto args = parse_extender_args(text);
    ASSERT_TRUE(args) << args.error().what;
    EXPECT_EQ(args->priority, 7);
    EXPECT_EQ(args->nominated, "n");
  }
  const std::string large = pod + R"(99999999999}},"NodeNames":[]})";
  EXPECT_EQ(parse_extender_args(large)->priority, INT32_MAX);
}

// Boost.JSON uses the last of two members with the same name. The walk must not use another one.
TEST(Extender, RepeatedMembersAreReadLikeInTheDocumentParser) {
  const std::string pods =
      std::string(R"({"Pod":)") + kPod + R"(,"Pod":{"metadata":{"name":"q","uid":"u-2"}},"NodeNames":["a"]})";
  const auto of_two = parse_extender_args(pods);
  ASSERT_TRUE(of_two) << of_two.error().what;
  EXPECT_EQ(of_two->pod.uid, "u-2");
  const std::string names = call(R"(,"NodeNames":["a"],"NodeNames":["b","c"])");
  EXPECT_THAT(parse_extender_args(names)->names, ElementsAre("b", "c"));
  const std::string escaped = call(R"(,"NodeNames":["a\u0062"])");
  EXPECT_THAT(parse_extender_args(escaped)->names, ElementsAre("ab"));
  EXPECT_FALSE(parse_extender_args(call(R"(,"NodeNames":["a",""])")));
  EXPECT_FALSE(parse_extender_args(call(R"(,"NodeNames":["a"])") + "x"));
  EXPECT_FALSE(parse_extender_args(R"({"Pod":tru,"NodeNames":["a"]})"));
}

TEST(Extender, VictimsAreReadInBothFormsAndWrittenByUid) {
  const std::string pod = R"({"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"priority":7}},)";
  const auto whole = parse_preemption_args(
      pod + R"("NodeNameToVictims":{"n1":{"Pods":[{"metadata":{"name":"v","uid":"v1"}}],"NumPDBViolations":1}}})");
  ASSERT_TRUE(whole) << whole.error().what;
  EXPECT_EQ(whole->priority, 7);
  EXPECT_THAT(whole->nodes.at("n1").uids, ElementsAre("v1"));
  const auto meta = parse_preemption_args(
      pod + R"("nodeNameToMetaVictims":{"n1":{"pods":[{"uid":"v1"}],"numPDBViolations":1},"n2":{"Pods":null}}})");
  ASSERT_TRUE(meta) << meta.error().what;
  EXPECT_EQ(preemption_result({*meta->nodes.find("n1")}), preemption_result(whole->nodes));
  EXPECT_EQ(preemption_result(whole->nodes),
            R"({"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v1"}],"NumPDBViolations":1}}})");
  EXPECT_TRUE(meta->nodes.at("n2").uids.empty());
  EXPECT_FALSE(parse_preemption_args(pod + R"("Nodes":{}})"));
  EXPECT_FALSE(parse_preemption_args(pod + R"("NodeNameToMetaVictims":{"n1":{"Pods":[{}]}}})"));
  EXPECT_FALSE(parse_preemption_args(R"({"NodeNameToMetaVictims":{}})"));
}

TEST(Extender, AnUnschedulablePodIsReportedToAnotherReplica) {
  const auto note = parse_turned_away(encode_turned_away({"u", {"a", "b"}}));
  ASSERT_TRUE(note);
  EXPECT_EQ(note->uid, "u");
  EXPECT_THAT(note->nodes, ElementsAre("a", "b"));
  EXPECT_FALSE(parse_turned_away("{}"));
}

TEST(Extender, ReadsBindingsAndWritesScores) {
  const auto args =
      parse_binding_args(R"({"PodName":"p","podNamespace":"s","PodUID":"u","Node":"n"})");
  ASSERT_TRUE(args);
  EXPECT_EQ(args->namespace_name + "/" + args->pod + "/" + args->uid + "/" + args->node, "s/p/u/n");
  const auto wished = parse_binding_args(
      with_wish(R"( {"PodName":"p","PodNamespace":"s","PodUID":"u","Node":"n"})", R"({"a":"\"b"})", "because"));
  ASSERT_TRUE(wished) << wished.error().what;
  EXPECT_EQ(wished->node, "n");
  EXPECT_EQ(wished->wish, R"({"a":"\"b"})");
  EXPECT_EQ(wished->why, "because");
  EXPECT_EQ(with_wish("no object", "w", "y"), "no object");
  EXPECT_EQ(binding_result(""), R"({"Error":""})");
  EXPECT_EQ(to_json(std::vector<HostScore>{{"a", 10}, {"b", 3}}),
            R"([{"Host":"a","Score":10},{"Host":"b","Score":3}])");
}

}  // namespace
}  // namespace carve::codec
