#include "app/control/schedule/extender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "app/control/schedule/bind_call.h"
#include "base/clock.h"
#include "codec/extender/extender.h"
#include "codec/record.h"
#include "core/cluster/quota_book.h"

namespace carve::control {
namespace {

using testing::HasSubstr;

std::shared_ptr<const NodeState> node(std::uint64_t free_gib) {
  const auto made = std::make_shared<NodeState>();
  NodeState& state = *made;
  Card card;
  card.id = CardId("GPU-0");
  card.model = "NVIDIA T4";
  card.memory = Bytes::gib(16);
  EXPECT_TRUE(state.ledger.put_card(card));
  if (free_gib < 16) {
    EXPECT_TRUE(state.ledger.add({Slice{
        {OwnerKind::kPod, "other"}, "c", card.id, Bytes::gib(16 - free_gib), CoreShare(1)}}));
  }
  return made;
}

/// `slots`: as admission adds them.
std::string call(const std::string& limits, const std::string& names, bool slots = true) {
  return R"({"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"containers":[{"name":"c","resources":{"limits":{)" +
         limits + (slots ? R"(,"elasticgpu.io/slot":"1")" : "") + R"(}}}]}},"NodeNames":[)" + names + "]}";
}

class ExtenderTest : public testing::Test {
 protected:
  std::shared_ptr<ClusterState> cluster_ = std::make_shared<ClusterState>(
      ClusterState{{"full", node(1)}, {"half", node(8)}, {"idle", node(16)}});
  std::shared_ptr<const PlacementRules> rules_ = std::make_shared<PlacementRules>();
  Extender extender_{{}, [this] { return rules_; }, [this] { return cluster_; }};
  const std::string all_ = R"("full","half","idle","other")";
};

TEST_F(ExtenderTest, FilterSeparatesFullNodesFromUnresolvableOnes) {
  EXPECT_EQ(
      extender_.filter(call(R"("aliyun.com/gpu-mem":"3")", all_)),
      R"({"NodeNames":["half","idle"],"Nodes":null,)"
      R"("FailedNodes":{"full":"no room for 3 GiB, besteffort: 1 card: largest free slice 1 GiB < 3 GiB"},)"
      R"("FailedAndUnresolvableNodes":{"other":"no card managed by Carve"},"Error":""})");
}

TEST_F(ExtenderTest, AnExhaustedQuotaIsUnresolvable) {
  const Extender limited({}, [this] { return rules_; }, [this] { return cluster_; }, {}, nullptr, {},
                         [](const std::string&, const Owner&, std::vector<PartRequest> parts) {
                           return without({{"NVIDIA T4", "quota of namespace s: 4 of 4 cards in use"}},
                                        std::move(parts));
                         });
  EXPECT_EQ(limited.filter(call(R"("aliyun.com/gpu-mem":"3")", R"("idle","other")")),
            R"({"NodeNames":[],"Nodes":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{)"
            R"("idle":"no room for 3 GiB, besteffort: 1 card: quota of namespace s: 4 of 4 cards in use",)"
            R"("other":"no card managed by Carve"},"Error":""})");
}

TEST_F(ExtenderTest, PrioritizeScoresOnlyTheEnginesChoiceTen) {
  EXPECT_EQ(extender_.prioritize(call(R"("aliyun.com/gpu-mem":"3")", R"("half","idle")")),
            R"([{"Host":"half","Score":10},{"Host":"idle","Score":0}])");
  auto more = std::make_shared<ClusterState>(*cluster_);
  more->put("third", node(8));
  cluster_ = more;
  EXPECT_EQ(extender_.prioritize(call(R"("aliyun.com/gpu-mem":"3")", R"("third","half")")),
            R"([{"Host":"third","Score":9},{"Host":"half","Score":10}])");
}

TEST_F(ExtenderTest, ChooseReturnsOnlyTheEnginesChoice) {
  EXPECT_EQ(extender_.choose(call(R"("aliyun.com/gpu-mem":"3")", all_)),
            R"({"NodeNames":["half"],"Nodes":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""})");
  const auto none = call(R"("aliyun.com/gpu-mem":"3")", R"("full","other")");
  EXPECT_EQ(extender_.choose(none),
            R"({"NodeNames":[],"Nodes":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{)"
            R"("full":"no room for 3 GiB, besteffort: 1 card: largest free slice 1 GiB < 3 GiB",)"
            R"("other":"no card managed by Carve"},"Error":""})")
      << "kube-scheduler must not look for victims itself";
  EXPECT_THAT(extender_.choose("{"), HasSubstr("not JSON"));
}

// The victims on the nominated node are terminating. kube-scheduler would clear the nomination if the node were
// unresolvable.
TEST_F(ExtenderTest, NominatedNodeIsNotUnresolvable) {
  auto text = call(R"("aliyun.com/gpu-mem":"12")", R"("full","half")");
  text.replace(text.find(R"("spec":)"), 0, R"("status":{"nominatedNodeName":"full"},)");
  for (const auto& answer : {extender_.choose(text), extender_.filter_to_place(text)}) {
    EXPECT_THAT(answer, HasSubstr(R"("FailedNodes":{"full":)"));
    EXPECT_THAT(answer, HasSubstr(R"("FailedAndUnresolvableNodes":{"half":)"));
  }
}

// With short reasons the pod's message stays the same while the free amounts change. kube-scheduler retries a pod
// immediately when its message changes.
TEST_F(ExtenderTest, ShortensReasonsForManyNodes) {
  std::string names;
  for (std::size_t i = 0; i < Extender::kMany; ++i) {
    const auto name = "n" + std::to_string(i);
    cluster_->put(name, node(1 + i % 8));
    names += (names.empty() ? "\"" : ",\"") + name + '"';
  }
  const auto asks = call(R"("aliyun.com/gpu-mem":"9")", names);
  const auto answer = extender_.choose(asks);
  EXPECT_THAT(answer, HasSubstr(R"("n7":"no card has enough free memory")"));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("largest")));
  EXPECT_THAT(extender_.filter(asks), HasSubstr("largest free slice 8 GiB < 9 GiB")) << "for other callers";
}

// The watcher's notes can cause evictions: a caller on the plain port must not cause them.
TEST_F(ExtenderTest, WatcherSeesOnlyTheSchedulersCalls) {
  std::vector<std::string> seen;
  const Extender watched(
      {}, [this] { return rules_; }, [this] { return cluster_; },
      [&](const Owner& owner, const FitView& fit) {
        seen.push_back(owner.uid + (fit.nodes.empty() ? " none" : " some"));
      });
  const auto none = call(R"("aliyun.com/gpu-mem":"3")", R"("full")");
  const auto some = call(R"("aliyun.com/gpu-mem":"3")", all_);
  EXPECT_THAT(watched.filter(none), HasSubstr("no room for 3 GiB"));
  EXPECT_THAT(watched.filter(some), HasSubstr("half"));
  EXPECT_TRUE(seen.empty());
  (void)watched.filter_to_place(none);
  (void)watched.choose(some);
  (void)watched.prioritize(some);
  EXPECT_EQ(seen, (std::vector<std::string>{"u none", "u some"}));
}

TEST_F(ExtenderTest, PodWithoutCardsFitsEverywhere) {
  EXPECT_THAT(extender_.choose(call(R"("cpu":"1")", all_)),
              HasSubstr(R"("NodeNames":["full","half","idle","other"])"));
  EXPECT_THAT(extender_.filter(call(R"("cpu":"1")", all_)),
              HasSubstr(R"("NodeNames":["full","half","idle","other"])"));
  EXPECT_EQ(extender_.prioritize(call(R"("cpu":"1")", all_)), "[]");
}

// The pod is in a namespace that admission excludes. A scheduler that is configured with these resource names still
// sends it to the extender.
TEST_F(ExtenderTest, PodWithoutSlotsFitsEverywhere) {
  const auto everywhere = extender_.filter(call(R"("cpu":"1")", all_));
  for (const char* limits : {R"("aliyun.com/gpu-mem":"3")", R"("nvidia.com/gpu":"64")",
                             R"("elasticgpu.io/gpu-memory":"nonsense")",
                             R"("aliyun.com/gpu-mem":"3","elasticgpu.io/slot":"0")"}) {
    const auto asked = call(limits, all_, false);
    EXPECT_EQ(extender_.filter(asked), everywhere) << limits;
    EXPECT_EQ(extender_.filter_to_place(asked), everywhere) << limits;
    EXPECT_EQ(extender_.choose(asked), everywhere) << limits;
    EXPECT_EQ(extender_.prioritize(asked), "[]") << limits;
  }
}

TEST_F(ExtenderTest, RefusesAClosedNodeWithItsReason) {
  auto closed = std::make_shared<NodeState>(*node(16));
  closed->reserved = {{OwnerKind::kPod, "u"}};
  closed->closed = "its agent is being replaced";
  cluster_->put("idle", closed);
  const auto said = extender_.filter(call(R"("aliyun.com/gpu-mem":"3")", R"("half","idle")"));
  EXPECT_THAT(said, HasSubstr(R"("NodeNames":["half"])"));
  EXPECT_THAT(said, HasSubstr(R"("FailedNodes":{"idle":"its agent is being replaced"})")) << "not permanently";
  // The next agent serves the node.
  auto open = std::make_shared<NodeState>(*node(16));
  auto next = std::make_shared<ClusterState>(*cluster_);
  next->put("idle", open);
  cluster_ = next;
  EXPECT_THAT(extender_.filter(call(R"("aliyun.com/gpu-mem":"3")", R"("half","idle")")),
              HasSubstr(R"("NodeNames":["half","idle"])"));
}

TEST_F(ExtenderTest, RefusesANodeOnlyToTheDialectThatAnotherPluginServes) {
  auto shared = std::make_shared<NodeState>(*node(16));
  shared->closed_to = {{"gpushare", "another device plugin serves aliyun.com/gpu-mem on the node"}};
  auto next = std::make_shared<ClusterState>(*cluster_);
  next->put("idle", shared);
  cluster_ = next;
  const auto both = R"("half","idle")";
  const auto said = extender_.filter(call(R"("aliyun.com/gpu-mem":"3")", both));
  EXPECT_THAT(said, HasSubstr(R"("NodeNames":["half"])"));
  EXPECT_THAT(said, HasSubstr(R"("FailedNodes":{"idle":")" + shared->closed_to["gpushare"] + "\"}"));
  for (const char* other : {R"("nvidia.com/gpu":"1")", R"("elasticgpu.io/gpu-memory":"10240")"})
    EXPECT_THAT(extender_.filter(call(other, both)), HasSubstr(R"("NodeNames":["idle"])")) << other;
}

TEST_F(ExtenderTest, HidesANominatedReservationFromPodsOfThatPriority) {
  auto held = std::make_shared<NodeState>(*node(16));
  const Slice kept{{OwnerKind::kPod, "first"}, "c", CardId("GPU-0"), Bytes::gib(14), CoreShare(1)};
  held->reservations = {{kept.owner, 5, {kept}, {}}};
  cluster_->put("idle", held);
  const auto with = [&](const std::string& priority) {
    auto text = call(R"("aliyun.com/gpu-mem":"3")", R"("idle")");
    return text.replace(text.find(R"("spec":{)"), 8, R"("spec":{"priority":)" + priority + ",");
  };
  EXPECT_THAT(extender_.filter(with("5")), HasSubstr("largest free slice 2 GiB < 3 GiB"));
  EXPECT_THAT(extender_.filter(with("6")), HasSubstr(R"("NodeNames":["idle"])"));
}

class Burst : public ExtenderTest {
 protected:
  /// The node that gets score 10 for that pod.
  std::string sent(const std::string& uid, const std::string& limits, const std::string& names) {
    auto text = call(limits, names);
    text.replace(text.find(R"("uid":"u")"), 9, R"("uid":")" + uid + "\"");
    const auto scores = ahead_.prioritize(text);
    const auto ten = scores.find(R"(","Score":10})");
    const auto from = scores.rfind('"', ten - 1) + 1;
    return ten == std::string::npos ? scores : scores.substr(from, ten - from);
  }
  ManualClock clock_;
  Extender ahead_{{}, [this] { return rules_; }, [this] { return cluster_; }, {}, &clock_};
  const std::string ask_ = R"("aliyun.com/gpu-mem":"3")";
  const std::string both_ = R"("half","idle")";
};

TEST_F(Burst, SendsTheNextPodsWhereRoomWillBe) {
  EXPECT_EQ(sent("a", ask_, both_), "half");
  EXPECT_EQ(sent("b", ask_, both_), "half");
  EXPECT_EQ(sent("c", ask_, both_), "idle");  // 8 - 3 - 3 GiB is too little
  EXPECT_EQ(sent("b", ask_, both_), "half");  // a repeated call: the pod does not block itself
}

TEST_F(Burst, ChooseAssumesThePodToo) {
  const auto chosen = [this](const std::string& uid) {
    auto text = call(ask_, both_);
    text.replace(text.find(R"("uid":"u")"), 9, R"("uid":")" + uid + "\"");
    const auto answer = ahead_.choose(text);
    return answer.substr(0, answer.find(",\"Nodes\""));
  };
  EXPECT_EQ(chosen("a"), R"({"NodeNames":["half"])");
  EXPECT_EQ(chosen("b"), R"({"NodeNames":["half"])");
  EXPECT_EQ(chosen("c"), R"({"NodeNames":["idle"])");
  EXPECT_EQ(ahead_.sent_for({OwnerKind::kPod, "b"}, "half").size(), 1U);
  EXPECT_EQ(ahead_.why_sent({OwnerKind::kPod, "b"}, "half"),
            "chosen by node:binpack,card:binpack among 2 of 2 nodes that kube-scheduler named");
  EXPECT_EQ(ahead_.why_sent({OwnerKind::kPod, "b"}, "idle"), "");
}

TEST_F(Burst, RanksForAnyCallerAndAssumesNoPod) {
  const auto two = call(R"("aliyun.com/gpu-mem":"6")", both_);
  EXPECT_EQ(ahead_.rank(two), R"([{"Host":"half","Score":10},{"Host":"idle","Score":0}])");
  EXPECT_TRUE(ahead_.sent_for({OwnerKind::kPod, "u"}, "half").empty());
  EXPECT_EQ(sent("b", ask_, both_), "half") << "the room is not kept for a pod that was only ranked";
  EXPECT_EQ(ahead_.rank("{"), "[]");
  EXPECT_EQ(ahead_.rank(call(R"("aliyun.com/gpu-mem":"99")", both_)), "[]") << "no node serves it";
}

// kube-scheduler does not call prioritize for a single node.
TEST_F(Burst, FilterAssumesAPodWithASingleNode) {
  const auto one = call(R"("aliyun.com/gpu-mem":"6")", R"("half")");
  const auto said = ahead_.filter(one);
  EXPECT_TRUE(ahead_.sent_for({OwnerKind::kPod, "u"}, "half").empty()) << "any caller may use the other route";
  EXPECT_EQ(ahead_.filter_to_place(one), said) << "the node has room";
  EXPECT_EQ(sent("b", ask_, both_), "idle") << "8 - 6 is too little";
  EXPECT_EQ(ahead_.sent_for({OwnerKind::kPod, "u"}, "half").size(), 1U);
  EXPECT_THAT(ahead_.filter_to_place(call(ask_, all_)), HasSubstr(R"({"NodeNames":["half","idle"],)"));
}

TEST_F(Burst, AssumesNoPodWithoutSlots) {
  (void)ahead_.filter_to_place(call(R"("aliyun.com/gpu-mem":"8")", R"("half")", false));
  (void)ahead_.prioritize(call(R"("aliyun.com/gpu-mem":"8")", both_, false));
  EXPECT_TRUE(ahead_.sent_for({OwnerKind::kPod, "u"}, "half").empty());
  EXPECT_EQ(sent("b", R"("aliyun.com/gpu-mem":"8")", both_), "half");
}

TEST_F(Burst, ReturnsTheAssumedSlicesToTheBinding) {
  EXPECT_EQ(sent("a", ask_, both_), "half");
  EXPECT_TRUE(ahead_.sent_for({OwnerKind::kPod, "a"}, "idle").empty());
  const auto wish = ahead_.sent_for({OwnerKind::kPod, "a"}, "half");
  ASSERT_EQ(wish.size(), 1U);
  EXPECT_EQ(wish[0].memory, Bytes::gib(3));
  EXPECT_EQ(wish[0].card, CardId("GPU-0"));
  EXPECT_EQ(sent("b", R"("aliyun.com/gpu-mem":"6")", both_), "idle") << "a's Binding is in progress";
}

TEST_F(Burst, RefusesNoNodeBecauseOfAnAssumption) {
  EXPECT_EQ(sent("a", R"("aliyun.com/gpu-mem":"8")", R"("half")"), "half");
  EXPECT_EQ(sent("b", R"("aliyun.com/gpu-mem":"8")", R"("half")"), "half");
  EXPECT_THAT(ahead_.filter(call(R"("aliyun.com/gpu-mem":"8")", R"("half")")), HasSubstr(R"("NodeNames":["half"])"));
}

// Earlier calls only affect the ranking: a filter's answer is a function of the call and the cluster.
TEST_F(Burst, FilterDependsOnlyOnTheCallAndTheCluster) {
  std::mt19937 dice(1);
  const auto any = [&dice](std::size_t below) { return dice() % below; };
  const char* const names[] = {R"("full")", R"("half","idle")", R"("idle","full","half","other")"};
  for (int i = 0; i < 500; ++i) {
    if (any(20) == 0) {
      const auto next = std::make_shared<ClusterState>(*cluster_);
      next->put("half", node(any(17)));
      cluster_ = next;
    }
    auto text = call(R"("aliyun.com/gpu-mem":")" + std::to_string(1 + any(16)) + '"', names[any(3)]);
    text.replace(text.find(R"("uid":"u")"), 9, R"("uid":"u)" + std::to_string(any(30)) + '"');
    const Extender fresh({}, [this] { return rules_; }, [this] { return cluster_; });
    const auto answer = fresh.filter(text);
    EXPECT_EQ(ahead_.filter(text), answer);
    EXPECT_EQ(ahead_.filter_to_place(text), fresh.filter_to_place(text));
    const auto chosen = ahead_.choose(text);
    const bool somewhere = answer.find(R"({"NodeNames":[],)") != 0;
    EXPECT_EQ(chosen.find(R"({"NodeNames":[],)") != 0, somewhere) << chosen << answer;
    (void)ahead_.prioritize(text);
    ASSERT_FALSE(HasFailure()) << "call " << i << ": " << text;
  }
}

TEST_F(Burst, ForgetsAnAssumptionAfterItsTime) {
  EXPECT_EQ(sent("a", R"("aliyun.com/gpu-mem":"8")", both_), "half");
  EXPECT_EQ(sent("b", ask_, both_), "idle");
  clock_.advance(AssumedPods::kFor);
  EXPECT_EQ(sent("c", ask_, both_), "half");
}

// Found in a cluster test: a series of short pods, each bound, run and deleted before the next call.
TEST_F(Burst, ForgetsAPodThatEndedBetweenTwoCalls) {
  EXPECT_EQ(sent("a", R"("aliyun.com/gpu-mem":"8")", both_), "half");
  EXPECT_EQ(ahead_.sent_for({OwnerKind::kPod, "a"}, "half").size(), 1U);
  EXPECT_EQ(sent("b", ask_, both_), "idle") << "its Binding is in progress";
  clock_.advance(AssumedPods::kAfterBinding);
  EXPECT_EQ(sent("c", ask_, both_), "half");
}

TEST_F(Burst, CountsABoundPodOnce) {
  EXPECT_EQ(sent("a", ask_, both_), "half");
  auto later = std::make_shared<ClusterState>(*cluster_);
  auto half = std::make_shared<NodeState>(*node(8));
  ASSERT_TRUE(half->ledger.add({Slice{{OwnerKind::kPod, "a"}, "c", CardId("GPU-0"), Bytes::gib(3), CoreShare(1)}}));
  later->put("half", half);
  cluster_ = later;
  EXPECT_EQ(sent("b", ask_, both_), "half");
  EXPECT_EQ(sent("c", ask_, both_), "idle");
}

TEST_F(ExtenderTest, ReturnsAnErrorForAnInvalidCall) {
  EXPECT_THAT(extender_.filter("{"), HasSubstr("not JSON"));
  EXPECT_THAT(extender_.filter(call(R"("aliyun.com/gpu-mem":"10G")", all_)),
              HasSubstr(R"(\"10G\" is 10000000000 GiB)"));
  EXPECT_EQ(extender_.prioritize("{"), "[]");
}

TEST_F(Burst, AForwardedBindCallCarriesTheChosenCards) {
  const auto bind = [](const std::string& node) {
    return R"({"PodName":"p","PodNamespace":"s","PodUID":"u","Node":")" + node + "\"}";
  };
  EXPECT_EQ(with_chosen_cards(ahead_, bind("half")), bind("half")) << "this replica did not choose";
  (void)ahead_.choose(call(R"("aliyun.com/gpu-mem":"3")", R"("half")"));
  const auto args = codec::parse_binding_args(with_chosen_cards(ahead_, bind("half")));
  ASSERT_TRUE(args) << args.error().what;
  EXPECT_EQ(args->node, "half");
  const auto record = codec::decode_record(args->wish);
  ASSERT_TRUE(record) << args->wish;
  EXPECT_EQ(record->owner.uid, "u");
  EXPECT_NE(args->why, "");
  EXPECT_EQ(with_chosen_cards(ahead_, bind("idle")), bind("idle")) << "it chose another node";
  EXPECT_EQ(with_chosen_cards(ahead_, "{"), "{");
}

}  // namespace
}  // namespace carve::control
