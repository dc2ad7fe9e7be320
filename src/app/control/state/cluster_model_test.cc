#include "app/control/state/cluster_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "app/control/testing/objects.h"
#include "app/control/schedule/requeuer.h"
#include "codec/node/plugin_conflict.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;

/// The API server's objects, one map per kind. The tests feed the model from it, as a watch would.
struct Server {
  std::map<std::string, std::string> nodes;
  std::map<std::string, std::string> gpus;
  std::map<std::string, std::string> pods;
};

std::vector<std::string> values(const std::map<std::string, std::string>& objects) {
  std::vector<std::string> all;
  for (const auto& [name, text] : objects) all.push_back(text);
  return all;
}

class Fed {
 public:
  ManualClock clock;
  std::vector<std::string> lines;
  Log log{[this](std::string_view line) { lines.emplace_back(line); }};
  ClusterModel model{{}, clock, log};
  KubeSink nodes = model.nodes();
  KubeSink gpus = model.gpus();
  KubeSink pods = model.pods();

  void all(const Server& server) {
    nodes.replace(values(server.nodes));
    gpus.replace(values(server.gpus));
    pods.replace(values(server.pods));
  }
  static void put(const KubeSink& sink, const std::string& object) { sink.change({KubeChange::Kind::kPut, object}); }
  static void gone(const KubeSink& sink, const std::string& object) {
    sink.change({KubeChange::Kind::kDeleted, object});
  }
  const CardState& card(const std::string& node, const std::string& uuid) {
    held = model.snapshot();
    return *held->at(node)->ledger.find(CardId(uuid));
  }
  Bytes used(const std::string& node, const std::string& uuid) { return card(node, uuid).use.memory; }
  void pass(Clock::Duration time) {
    clock.advance(time);
    model.expire();
  }
  std::shared_ptr<const ClusterState> held;
};

class ClusterModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fed.nodes.replace({node_object("n1", R"("pool":"a")")});
    fed.gpus.replace({gpu_object(card)});
    fed.pods.replace({});
  }
  void say(std::vector<codec::GpuHolder> holders) {
    card.holders = std::move(holders);
    Fed::put(fed.gpus, gpu_object(card));
  }
  std::string bound(const std::string& uid, std::uint64_t gib = 4, const std::string& phase = "Running") {
    return pod_object({.uid = uid, .node = "n1", .record = record_text({slice(uid, "GPU-0", gib)}), .phase = phase});
  }
  Fed fed;
  codec::GpuObject card = gpu("n1", "GPU-0");
};

TEST_F(ClusterModelTest, PublishesExactlyWhatChanged) {
  ChangeQueue queue({&fed.model.changes()});
  Fed::put(fed.nodes, node_object("n1", R"("pool":"a")"));
  EXPECT_TRUE(queue.take().empty()) << "a heartbeat";
  Fed::put(fed.pods, pod_object({.uid = "waits"}));
  auto changes = queue.take();
  EXPECT_EQ(changes.pods, std::set<std::string>{"waits"});
  EXPECT_TRUE(changes.nodes.empty());
  Fed::put(fed.pods, bound("a"));
  changes = queue.take();
  EXPECT_TRUE(changes.pods.empty()) << "it has a node and a record: no consumer acts on it";
  EXPECT_EQ(changes.nodes, std::set<std::string>{"n1"});
  Fed::put(fed.pods, bound("a"));
  EXPECT_TRUE(queue.take().empty()) << "its status";
  Fed::put(fed.pods, pod_object({.uid = "waits", .node = "n1"}));
  changes = queue.take();
  EXPECT_EQ(changes.pods, std::set<std::string>{"waits"}) << "bound without Carve: it is unplaced";
  Fed::gone(fed.pods, pod_object({.uid = "waits", .node = "n1"}));
  EXPECT_EQ(queue.take().pods, std::set<std::string>{"waits"});
  EXPECT_FALSE(changes.all);
}

/// The last states of objects that an administrator has edited, or that a later release writes.
TEST_F(ClusterModelTest, RemovesADeletedObjectThatCannotBeParsed) {
  const std::string pod = R"({"metadata":{"namespace":"s","name":"a","uid":"a"},"spec":{"containers":[{}]}})";
  const std::string gpu = R"({"metadata":{"name":")" + card.name + R"("},"spec":{"memory":"large"}})";
  Fed::put(fed.pods, bound("a"));
  Fed::put(fed.pods, pod);
  Fed::put(fed.gpus, gpu);
  EXPECT_EQ(fed.model.stats().unreadable, 2U);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "each keeps its last state";
  fed.pods.replace({pod});
  fed.gpus.replace({gpu});
  EXPECT_EQ(fed.model.stats().unreadable, 4U);
  fed.pass(ClusterModel::kLinger);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "also when the watch begins again";
  Fed::gone(fed.pods, pod);
  fed.pass(ClusterModel::kLinger);
  EXPECT_EQ(fed.model.pod("a"), nullptr);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
  Fed::gone(fed.gpus, gpu);
  EXPECT_EQ(fed.model.stats().cards, 0U);
  EXPECT_EQ(fed.model.stats().unreadable, 4U);
  for (const auto* sink : {&fed.nodes, &fed.gpus, &fed.pods}) Fed::gone(*sink, "{}");
  EXPECT_EQ(fed.model.stats().unreadable, 7U);
}

TEST_F(ClusterModelTest, CountsPodsAsTheirObjectsChange) {
  EXPECT_EQ(fed.model.lowest_held_priority(), INT64_MAX);
  const auto holder_with = [&](const std::string& uid, int priority, const std::string& more = "") {
    return pod_object({.uid = uid,
                       .node = "n1",
                       .record = record_text({slice(uid, "GPU-0", 1)}),
                       .phase = "Running",
                       .more = more,
                       .priority = priority});
  };
  Fed::put(fed.pods, holder_with("a", 5));
  Fed::put(fed.pods, holder_with("b", -3));
  Fed::put(fed.pods, pod_object({.uid = "waits"}));
  Fed::put(fed.pods, pod_object({.uid = "static", .node = "n1"}));
  EXPECT_EQ(fed.model.lowest_held_priority(), -3);
  EXPECT_EQ(fed.model.waiting_count(), 1U);
  ASSERT_EQ(fed.model.unplaced().size(), 1U);
  EXPECT_EQ(fed.model.unplaced()[0]->object.ask.uid, "static");
  Fed::put(fed.pods, holder_with("b", -3, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")"));
  EXPECT_EQ(fed.model.lowest_held_priority(), 5) << "b is being deleted";
  EXPECT_EQ(fed.model.stats().holding, 2U);
  fed.pods.replace({holder_with("b", -3)});
  EXPECT_EQ(fed.model.lowest_held_priority(), -3);
  EXPECT_EQ(fed.model.waiting_count(), 0U);
  EXPECT_TRUE(fed.model.unplaced().empty());
  EXPECT_EQ(fed.model.stats().holding, 1U);
}

TEST_F(ClusterModelTest, ReportsWhenRoomEndsNext) {
  EXPECT_EQ(fed.model.expire(), Clock::Time::max());
  Fed::put(fed.pods, bound("a"));
  Fed::gone(fed.pods, bound("a"));
  EXPECT_EQ(fed.model.expire(), fed.clock.now() + ClusterModel::kLinger);
  ChangeQueue queue({&fed.model.changes()});
  fed.pass(ClusterModel::kLinger);
  EXPECT_EQ(queue.take().nodes, std::set<std::string>{"n1"});
  EXPECT_EQ(fed.model.expire(), Clock::Time::max());
  const auto until = fed.clock.now() + 5s;
  fed.model.put_nominated_reservation("n1", {{OwnerKind::kPod, "p"}, 0, {slice("p", "GPU-0", 4)}, {}}, until);
  EXPECT_EQ(fed.model.expire(), until);
  EXPECT_TRUE(fed.model.has_nominated_reservation("p"));
  fed.clock.advance(5s);
  EXPECT_FALSE(fed.model.has_nominated_reservation("p"));
  EXPECT_EQ(fed.model.stats().nominated, 1U) << "reading removes nothing";
  EXPECT_EQ(fed.model.expire(), Clock::Time::max());
  EXPECT_EQ(fed.model.stats().nominated, 0U);
}

TEST_F(ClusterModelTest, KeepsLinksOfTheCurrentCards) {
  const auto link = [this] {
    return fed.model.snapshot()->at("n1")->links.between(CardId("GPU-0"), CardId("GPU-1")).lanes;
  };
  auto other = gpu("n1", "GPU-1");
  EXPECT_EQ(link(), 0);
  card.links = {{"GPU-1", "NVLINK", 4}};
  Fed::put(fed.gpus, gpu_object(card));
  EXPECT_EQ(link(), 0) << "the other end of the link is missing";
  Fed::put(fed.gpus, gpu_object(other));
  EXPECT_EQ(link(), 4);
  say({holder(slice("u", "GPU-0", 1))});
  EXPECT_EQ(link(), 4);
  card.links = {{"GPU-1", "NVLINK", 12}};
  Fed::put(fed.gpus, gpu_object(card));
  EXPECT_EQ(link(), 12);
  Fed::gone(fed.gpus, gpu_object(other));
  EXPECT_EQ(link(), 0);
}

TEST_F(ClusterModelTest, IsSyncedAfterAllThreeLists) {
  Fed other;
  EXPECT_FALSE(other.model.synced());
  other.nodes.replace({});
  other.gpus.replace({});
  EXPECT_FALSE(other.model.synced());
  EXPECT_TRUE(fed.model.synced());
  const auto state = fed.model.snapshot();
  ASSERT_EQ(state->size(), 1U);
  EXPECT_EQ(state->at("n1")->labels.at("pool"), "a");
  Fed::gone(fed.nodes, node_object("n1"));
  EXPECT_TRUE(fed.model.snapshot()->empty());
  EXPECT_EQ(state->size(), 1U) << "a snapshot never changes";
}

TEST_F(ClusterModelTest, BooksARecordFromTheBindingUntilItsNodeReleasesIt) {
  Fed::put(fed.pods, bound("a"));
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
  say({holder(slice("a", "GPU-0", 4))});
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "one slice, named by two sources";
  Fed::gone(fed.pods, bound("a"));
  fed.pass(1h);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "the pod is deleted, its processes still run";
  say({});
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
}

TEST_F(ClusterModelTest, FreesAnEndedPodOnlyWhenItsNodeReleasesIt) {
  Fed::put(fed.pods, bound("a"));
  say({holder(slice("a", "GPU-0", 4))});
  Fed::put(fed.pods, bound("a", 4, "Succeeded"));
  fed.pass(1h);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
  say({});
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
}

TEST_F(ClusterModelTest, BooksADeletedPodForTheLingerTimeIfItsNodeNeverNamedIt) {
  Fed::put(fed.pods, bound("a"));
  Fed::gone(fed.pods, bound("a"));
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
  fed.pass(ClusterModel::kLinger);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
  Fed::put(fed.pods, bound("b"));
  Fed::gone(fed.pods, bound("b"));
  say({holder(slice("b", "GPU-0", 4))});
  say({});
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes()) << "named late and released: nothing to wait for";
}

TEST_F(ClusterModelTest, BooksSlicesOfClaims) {
  say({holder(slice("claim", "GPU-0", 10, OwnerKind::kClaim))});
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(10));
  EXPECT_EQ(fed.model.stats().conflicts, 0U);
}

TEST_F(ClusterModelTest, ADeletedNodeHasNoConflicts) {
  Fed::put(fed.pods, bound("a", 10));
  Fed::gone(fed.nodes, node_object("n1"));
  fed.model.gpus().replace({});
  EXPECT_TRUE(fed.model.conflicts().empty()) << "the pod garbage collector deletes the pod";
  EXPECT_TRUE(fed.lines.empty());
}

TEST_F(ClusterModelTest, ClosesTheCardOfARecordThatDoesNotFit) {
  Fed::put(fed.pods, bound("a", 10));
  Fed::put(fed.pods, bound("b", 10));
  const auto conflicts = fed.model.conflicts();
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].first, "n1");
  EXPECT_EQ(conflicts[0].second.owner.uid, "b");
  EXPECT_FALSE(fed.card("n1", "GPU-0").card.closed.empty());
  EXPECT_EQ(fed.model.stats().closed, 1U);
  ASSERT_EQ(fed.lines.size(), 1U);
  EXPECT_THAT(fed.lines[0], HasSubstr("a booked slice does not fit"));
  Fed::put(fed.pods, bound("b", 10, "Failed"));
  fed.pass(ClusterModel::kLinger);
  EXPECT_TRUE(fed.model.conflicts().empty());
  EXPECT_TRUE(fed.card("n1", "GPU-0").card.closed.empty());
  EXPECT_EQ(fed.model.stats().conflicts_seen, 1U);
}

/// At every start the three lists arrive one after the other, and a reader may read in between.
TEST_F(ClusterModelTest, ReportsConflictsOnlyAfterAllThreeLists) {
  Fed other;
  other.pods.replace({bound("a", 10), bound("b", 10)});
  EXPECT_TRUE(other.model.conflicts().empty());
  other.nodes.replace({node_object("n1")});
  EXPECT_TRUE(other.model.conflicts().empty()) << "its cards are not known yet";
  EXPECT_TRUE(other.lines.empty()) << other.lines.front();
  other.gpus.replace({gpu_object(card)});
  EXPECT_EQ(other.model.stats().conflicts, 1U);
  EXPECT_EQ(other.model.stats().conflicts_seen, 1U);
  ASSERT_EQ(other.lines.size(), 1U);
  EXPECT_THAT(other.lines[0], HasSubstr("a booked slice does not fit"));
  other.pods.replace({bound("a", 10), bound("b", 10)});
  EXPECT_EQ(other.model.stats().conflicts_seen, 1U) << "a restarted watch reports nothing twice";
}

TEST_F(ClusterModelTest, ReportsARecordOfAnotherPodOrOfAMissingCardAsAConflict) {
  Fed::put(fed.pods, pod_object({.uid = "a", .node = "n1", .record = record_text({slice("b", "GPU-0", 4)})}));
  Fed::put(fed.pods, pod_object({.uid = "c", .node = "n1", .record = record_text({slice("c", "GPU-7", 4)})}));
  Fed::put(fed.pods, pod_object({.uid = "d", .node = "n1", .record = "{}"}));
  EXPECT_EQ(fed.model.conflicts().size(), 3U);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
}

TEST_F(ClusterModelTest, IgnoresARecordWithoutANode) {
  Fed::put(fed.pods, pod_object({.uid = "a", .record = record_text({slice("a", "GPU-0", 4)})}));
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
  EXPECT_EQ(fed.model.stats().waiting, 1U);
}

// For a waiting pod, others would be evicted, and kube-scheduler would be asked to retry again and again.
TEST_F(ClusterModelTest, IgnoresAPodWithoutSlots) {
  Fed::put(fed.pods, pod_object({.uid = "a", .slots = false}));
  Fed::put(fed.pods, pod_object({.uid = "b", .gib = "nonsense", .slots = false}));
  EXPECT_EQ(fed.model.stats().waiting, 0U);
  EXPECT_EQ(fed.model.pod("a"), nullptr);
  EXPECT_EQ(fed.model.pod("b"), nullptr);
  // A pod that got cards from an older version of control holds them until it ends.
  Fed::put(fed.pods, pod_object({.uid = "c", .node = "n1", .record = record_text({slice("c", "GPU-0", 4)}),
                                 .slots = false}));
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
}

TEST_F(ClusterModelTest, ClosesDraCardsAndCardsWithUnreadableHolders) {
  card.plugins = {"dra"};
  say({});
  EXPECT_THAT(fed.card("n1", "GPU-0").card.closed, HasSubstr("DRA only"));
  card.plugins = {"dra", "slots"};
  say({});
  EXPECT_EQ(fed.card("n1", "GPU-0").card.closed, "");
  card.holders = {holder(slice("x", "GPU-0", 1))};
  auto text = gpu_object(card);
  text.replace(text.find("\"pod\""), 5, "\"odd\"");
  Fed::put(fed.gpus, text);
  EXPECT_THAT(fed.card("n1", "GPU-0").card.closed, HasSubstr("cannot be parsed"));
}

TEST_F(ClusterModelTest, CardsHaveTheModeThatTheirNodeStates) {
  EXPECT_EQ(fed.card("n1", "GPU-0").card.mode, CardMode::kAny);
  const auto before = fed.model.snapshot()->at("n1");
  Fed::put(fed.nodes, node_object("n1", R"("elasticgpu.io/card-mode":"exclusive")"));
  EXPECT_EQ(fed.card("n1", "GPU-0").card.mode, CardMode::kExclusive);
  EXPECT_TRUE(gained_room(*before, *fed.model.snapshot()->at("n1"))) << "pods that wait for this mode are retried";
  EXPECT_FALSE(fed.model.drains("n1"));
}

TEST_F(ClusterModelTest, PlacesNothingByANameOfWhichTheKubeletStillHasNone) {
  const auto node = [](const char* mode, const char* total) {
    return fmt::format(R"({{"metadata":{{"name":"n1","labels":{{"elasticgpu.io/card-mode":"{}"}}}},)"
                       R"("status":{{"allocatable":{{"aliyun.com/gpu-mem":"{}"}}}}}})",
                       mode, total);
  };
  const auto closed = [&] { return fed.model.snapshot()->at("n1")->closed_to; };
  Fed::put(fed.nodes, node("exclusive", "0"));
  EXPECT_TRUE(closed().empty()) << "the mode says why";
  Fed::put(fed.nodes, node("any", "0"));
  EXPECT_EQ(closed().at("gpushare"), "the kubelet has 0 aliyun.com/gpu-mem until it knows the new mode of the cards");
  EXPECT_EQ(closed().count("native"), 0U);
  Fed::put(fed.nodes, node("any", "15"));
  EXPECT_TRUE(closed().empty());
}

TEST_F(ClusterModelTest, ReservesNothingOnANodeWhoseAgentIsLeaving) {
  const auto say_leaving = [&](const char* status) {
    Fed::put(fed.nodes, fmt::format(R"({{"metadata":{{"name":"n1"}},"status":{{"conditions":[)"
                                    R"({{"type":"GPUAgentLeaving","status":"{}"}}]}}}})",
                                    status));
  };
  Fed::put(fed.pods, pod_object({.uid = "a"}));
  const auto before = fed.model.snapshot();
  say_leaving("True");
  const auto leaving = fed.model.snapshot();
  EXPECT_THAT(leaving->at("n1")->closed, HasSubstr("agent is being replaced"));
  EXPECT_EQ(fed.model.stats().leaving, 1U);
  const auto refused = fed.model.reserve("n1", *fed.model.pod("a"), kPolicies[0], 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable) << "kube-scheduler must retry";
  // A pod that got this node without Carve is already admitted there and waits for its cards.
  Fed::put(fed.pods, pod_object({.uid = "there", .node = "n1"}));
  EXPECT_TRUE(fed.model.reserve("n1", *fed.model.pod("there"), kPolicies[0], 1));
  say_leaving("False");
  EXPECT_TRUE(gained_room(*leaving->at("n1"), *fed.model.snapshot()->at("n1"))) << "waiting pods are requeued";
  EXPECT_FALSE(gained_room(*before->at("n1"), *leaving->at("n1")));
  EXPECT_TRUE(fed.model.reserve("n1", *fed.model.pod("a"), kPolicies[0], 1));
}

// The pods of namespace s request 4 of the card's 16 GiB each: a quarter of the card.
TEST_F(ClusterModelTest, ReservesNothingBeyondTheQuotaOfTheNamespace) {
  for (const char* uid : {"a", "b", "c"}) Fed::put(fed.pods, pod_object({.uid = uid}));
  fed.model.set_quotas({{"s", {{"T4", 50}}}});
  EXPECT_EQ(fed.model.quota_changes(), 1U);
  ASSERT_TRUE(fed.model.reserve("n1", *fed.model.pod("a"), kPolicies[0], 1));
  ASSERT_TRUE(fed.model.reserve("n1", *fed.model.pod("b"), kPolicies[0], 1)) << "exactly the quota";
  const auto refused = fed.model.reserve("n1", *fed.model.pod("c"), kPolicies[0], 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what,
            "no room for 4 GiB, besteffort: 1 card: quota of namespace s: 0.5 of 0.5 T4 cards in use, the pod requests "
            "0.25");
  EXPECT_EQ(fed.model.within_quota(*fed.model.pod("c")).at(0).request.constraints.barred.size(), 1U);
  EXPECT_TRUE(fed.model.reserve("n1", *fed.model.pod("b"), kPolicies[0], 1)) << "a repeated call for the same pod";
  fed.model.settle("n1", {OwnerKind::kPod, "a"}, Outcome::kFailed);
  EXPECT_TRUE(fed.model.reserve("n1", *fed.model.pod("c"), kPolicies[0], 1)) << "its room was given back";
}

TEST_F(ClusterModelTest, ADeletedPodCountsForItsQuotaUntilItsSliceEnds) {
  fed.model.set_quotas({{"s", {{"", 25}}}});
  const auto used = [&] { return fed.model.quota_uses().at(0).used; };
  Fed::put(fed.pods, bound("a"));
  EXPECT_EQ(used(), 25U) << "by its record";
  say({holder(slice("a", "GPU-0", 4))});
  EXPECT_EQ(used(), 25U) << "record and GPU object name the same slice";
  Fed::gone(fed.pods, bound("a"));
  EXPECT_EQ(used(), 25U) << "its processes run; the GPU object has its namespace";
  say({});
  EXPECT_EQ(used(), 0U);
  say({holder(slice("claim", "GPU-0", 8, OwnerKind::kClaim))});
  EXPECT_EQ(used(), 50U) << "a ResourceClaim of the namespace counts, although Carve does not place it";
  fed.model.set_quotas({{"other", {{"", 25}}}});
  EXPECT_EQ(used(), 0U);
  fed.model.set_quotas({});
  EXPECT_TRUE(fed.model.quota_uses().empty());
}

TEST_F(ClusterModelTest, ReservesNothingWhereAnotherPluginServesTheDialect) {
  const auto say = [&](const std::string& name, const char* status) {
    Fed::put(fed.nodes, fmt::format(R"({{"metadata":{{"name":"n1"}},"status":{{"conditions":[)"
                                    R"({{"type":"ConflictingPlugin","status":"{}","message":"{}; pods that"}}]}}}})",
                                    status, codec::conflict_words(name, 7)));
  };
  Fed::put(fed.pods, pod_object({.uid = "a"}));  // requests in gpushare's spelling
  Fed::put(fed.pods, pod_object({.uid = "there", .node = "n1"}));
  say("nvidia.com/gpu", "True");
  EXPECT_TRUE(fed.model.reserve("n1", *fed.model.pod("a"), kPolicies[0], 1)) << "the name of another dialect";
  fed.model.settle("n1", {OwnerKind::kPod, "a"}, Outcome::kFailed);
  for (const char* name : {"aliyun.com/gpu-mem", "aliyun.com/gpu-count"}) {
    say(name, "True");
    const auto closed = fed.model.snapshot();
    EXPECT_EQ(closed->at("n1")->closed, "");
    EXPECT_THAT(closed->at("n1")->closed_to.at("gpushare"), HasSubstr(name));
    EXPECT_EQ(closed->at("n1")->closed_to.count("cgpu"), name == std::string("aliyun.com/gpu-mem") ? 1U : 0U)
        << "cGPU's pods request gpushare's memory too";
    EXPECT_EQ(closed->at("n1")->closed_to.count("nvidia"), 0U);
    EXPECT_EQ(fed.model.stats().conflicting, 1U);
    for (const char* uid : {"a", "there"}) {
      const auto refused = fed.model.reserve("n1", *fed.model.pod(uid), kPolicies[0], 1);
      ASSERT_FALSE(refused) << uid;
      EXPECT_EQ(refused.error().code, Code::kUnavailable) << "kube-scheduler must retry";
      EXPECT_THAT(refused.error().what, HasSubstr("another device plugin serves"));
    }
    say(name, "False");
    EXPECT_TRUE(gained_room(*closed->at("n1"), *fed.model.snapshot()->at("n1"))) << "waiting pods are requeued";
    EXPECT_FALSE(gained_room(*fed.model.snapshot()->at("n1"), *closed->at("n1")));
    EXPECT_TRUE(fed.model.reserve("n1", *fed.model.pod("a"), kPolicies[0], 1));
    fed.model.settle("n1", {OwnerKind::kPod, "a"}, Outcome::kFailed);
  }
}

TEST_F(ClusterModelTest, KeepsReservedRoomUntilTheWatchShowsTheRecord) {
  const PodEntry pod = *pod_entry_of(*codec::parse_cluster_pod(pod_object({.uid = "a"})), {});
  const Owner owner{OwnerKind::kPod, "a"};
  const auto room = fed.model.reserve("n1", pod, kPolicies[0], 7);
  ASSERT_TRUE(room) << room.error().what;
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
  EXPECT_EQ(fed.held->at("n1")->reserved, std::vector<Owner>{owner});
  const auto again = fed.model.reserve("n1", pod, kPolicies[1], 7);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->slices, room->slices) << "a repeated write contains the same record";
  fed.model.settle("n1", owner, Outcome::kFailed);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "the other write is in progress";
  fed.model.settle("n1", owner, Outcome::kBound);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
  EXPECT_EQ(fed.model.unsettled(fed.clock.now()).size(), 1U);
  Fed::put(fed.pods, bound("a"));
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4));
  EXPECT_TRUE(fed.held->at("n1")->reserved.empty());
  EXPECT_EQ(fed.model.reserve("n1", pod, kPolicies[0], 7).error().code, Code::kFailedPrecondition);
}

TEST_F(ClusterModelTest, ReservesTheWishedCardsWhileTheyHaveRoom) {
  codec::GpuObject other = gpu("n1", "GPU-1");
  other.index = 1;
  Fed::put(fed.gpus, gpu_object(other));
  const PodEntry pod = *pod_entry_of(*codec::parse_cluster_pod(pod_object({.uid = "a"})), {});
  const auto chosen = fed.model.reserve("n1", pod, kPolicies[0], 7);
  ASSERT_TRUE(chosen) << chosen.error().what;
  fed.model.release("n1", pod.owner());
  auto wish = chosen->slices;
  ASSERT_EQ(wish.size(), 1U);
  wish[0].card = CardId(wish[0].card == CardId("GPU-0") ? "GPU-1" : "GPU-0");
  const auto wished = fed.model.reserve("n1", pod, kPolicies[0], 7, wish);
  ASSERT_TRUE(wished);
  EXPECT_EQ(wished->slices, wish);
  fed.model.release("n1", pod.owner());
  const auto right = wish;
  wish[0].memory = Bytes::gib(1000);  // a wish names cards only; the amounts come from the request
  const auto greedy = fed.model.reserve("n1", pod, kPolicies[0], 7, wish);
  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->slices, right);
  fed.model.release("n1", pod.owner());
  wish[0].card = CardId("GPU-9");
  const auto gone = fed.model.reserve("n1", pod, kPolicies[0], 7, wish);
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->slices, chosen->slices);
}

TEST_F(ClusterModelTest, ChoosesAgainForRoomOfAnEarlierTerm) {
  const PodEntry pod = *pod_entry_of(*codec::parse_cluster_pod(pod_object({.uid = "a"})), {});
  const Owner owner{OwnerKind::kPod, "a"};
  ASSERT_TRUE(fed.model.reserve("n1", pod, kPolicies[0], 1));
  fed.model.settle("n1", owner, Outcome::kUnknown);
  Fed::put(fed.pods, bound("b", 14));  // by the leader in between
  EXPECT_EQ(fed.model.reserve("n1", pod, kPolicies[0], 3).error().code, Code::kResourceExhausted);
  EXPECT_EQ(fed.model.stats().reserved, 0U);
  EXPECT_EQ(fed.model.stats().conflicts, 0U);
}

TEST_F(ClusterModelTest, FreesRoomAfterAFailedWriteOrADeletedPod) {
  const PodEntry pod = *pod_entry_of(*codec::parse_cluster_pod(pod_object({.uid = "a"})), {});
  const Owner owner{OwnerKind::kPod, "a"};
  ASSERT_TRUE(fed.model.reserve("n1", pod, kPolicies[0], 7));
  fed.model.settle("n1", owner, Outcome::kFailed);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
  ASSERT_TRUE(fed.model.reserve("n1", pod, kPolicies[0], 7));
  fed.model.settle("n1", owner, Outcome::kUnknown);
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "it may still take effect";
  fed.pods.replace({});
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes::gib(4)) << "the list may be older than the pod";
  Fed::gone(fed.pods, pod_object({.uid = "a"}));
  EXPECT_EQ(fed.used("n1", "GPU-0"), Bytes());
}

/// Three streams that are delivered in any order, with complete lists in between, end in the same state as one list.
TEST(ClusterModelHistories, EndInTheSameStateAsANewModel) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    Fed fed;
    Server server;
    // The events that each watch still has to deliver; each stream keeps its own order.
    std::vector<std::vector<std::function<void()>>> streams(3);
    std::vector<std::size_t> delivered(3, 0);
    const auto deliver = [&](std::size_t i) {
      if (delivered[i] < streams[i].size()) streams[i][delivered[i]++]();
    };
    const auto change = [&](std::size_t i, const KubeSink& sink, std::map<std::string, std::string>* objects,
                            const std::string& name, const std::string& text) {
      const bool there = objects->contains(name);
      if (text.empty() && !there) return;
      const auto old = there ? (*objects)[name] : std::string();
      if (text.empty()) {
        objects->erase(name);
      } else {
        (*objects)[name] = text;
      }
      const auto kind = text.empty() ? KubeChange::Kind::kDeleted : KubeChange::Kind::kPut;
      streams[i].push_back([&sink, kind, object = text.empty() ? old : text] { sink.change({kind, object}); });
    };
    fed.all(server);
    for (int step = 0; step < 60; ++step) {
      const auto node = "n" + std::to_string(pick(2));
      const auto uuid = node + "-GPU-" + std::to_string(pick(2));
      const auto uid = "u" + std::to_string(pick(5));
      const auto held = slice(uid, uuid, 1 + pick(9), pick(6) == 0 ? OwnerKind::kClaim : OwnerKind::kPod);
      switch (pick(9)) {
        case 0:
          change(0, fed.nodes, &server.nodes, node, pick(4) == 0 ? "" : node_object(node));
          break;
        case 1:
        case 2: {
          auto object = gpu(node, uuid);
          if (pick(2) == 0) object.holders = {holder(held)};
          object.card.health.ok = pick(5) != 0;
          change(1, fed.gpus, &server.gpus, object.name, pick(6) == 0 ? "" : gpu_object(object));
          break;
        }
        case 3:
        case 4:
        case 5: {
          auto mine = held;
          mine.owner = {OwnerKind::kPod, uid};
          PodText pod{.uid = uid};
          pod.phase = pick(4) == 0 ? "Succeeded" : "Running";
          if (pick(3) != 0) pod.node = node;
          if (pick(4) != 0) pod.record = record_text({mine}, pick(3));
          change(2, fed.pods, &server.pods, uid, pick(4) == 0 ? "" : pod_object(pod));
          break;
        }
        case 6: {  // a watch restarts with a complete list, which includes the undelivered events
          const auto i = pick(3);
          delivered[i] = streams[i].size();
          if (i == 0) fed.nodes.replace(values(server.nodes));
          if (i == 1) fed.gpus.replace(values(server.gpus));
          if (i == 2) fed.pods.replace(values(server.pods));
          break;
        }
        case 7: {  // a decision, or the outcome of its write
          const auto known = fed.model.pod(uid);
          const Owner owner{OwnerKind::kPod, uid};
          if (pick(2) == 0) {
            fed.model.settle(node, owner, pick(2) == 0 ? Outcome::kFailed : Outcome::kBound);
          } else if (known && known->waits()) {
            (void)fed.model.reserve(node, *known, kPolicies[0], 1 + pick(3));
          }
          break;
        }
        default:
          fed.pass(500ms);
          break;
      }
      for (unsigned n = pick(4); n > 0; --n) deliver(pick(3));
      for (const auto& [name, state] : *fed.model.snapshot()) ASSERT_TRUE(state->ledger.audit()) << "seed " << seed;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      while (delivered[i] < streams[i].size()) deliver(i);
    }
    fed.pass(ClusterModel::kLinger);
    for (unsigned i = 0; i < 10; ++i)
      fed.model.release("n" + std::to_string(i % 2), {OwnerKind::kPod, "u" + std::to_string(i / 2)});
    Fed scratch;
    scratch.all(server);
    const auto is = fed.model.snapshot();
    const auto should = scratch.model.snapshot();
    ASSERT_EQ(is->size(), should->size()) << "seed " << seed;
    for (const auto& [name, state] : *should) ASSERT_EQ(*is->at(name), *state) << "seed " << seed << ", node " << name;
    ASSERT_EQ(fed.model.conflicts(), scratch.model.conflicts()) << "seed " << seed;
    ASSERT_EQ(fed.model.stats().holding, scratch.model.stats().holding) << "seed " << seed;
  }
}

}  // namespace
}  // namespace carve::control
