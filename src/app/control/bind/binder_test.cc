#include "app/control/bind/binder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "app/control/testing/leading.h"
#include "codec/extender/extender.h"
#include "codec/record.h"
#include "port/testing/relayed_kube_api.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;
using carve::testing::FakeKubeApi;
using carve::testing::RelayedKubeApi;

std::string call(const std::string& uid, const std::string& node = "n1") {
  return fmt::format(R"({{"PodName":"{}","PodNamespace":"s","PodUID":"{}","Node":"{}"}})", uid, uid, node);
}

constexpr char kOk[] = R"({"Error":""})";

/// An API with Bindings that may be late or lost: the answer arrives or not, and the effect comes now, later or never.
class Unsure final : public RelayedKubeApi {
 public:
  Unsure(FakeKubeApi& api, unsigned seed) : RelayedKubeApi(api), random_(seed) {}
  Result<std::string> create(const std::string& path, const std::string& body) override {
    unsigned way = 0;
    auto lost = Code::kDeadlineExceeded;
    {
      const std::lock_guard lock(mutex_);
      way = static_cast<unsigned>(random_() % 6);
      if (random_() % 2 == 0) lost = Code::kInternal;  // 5xx: the server gave up at an unknown point
      if (way == 2 || way == 3) late_.emplace_back(path, body);
    }
    if (way == 0) return fail(Code::kUnavailable, "the server asks for a retry later");
    if (way == 1) (void)api_.create(path, body);  // the write takes effect, and its answer is lost
    if (way <= 3) return fail(lost, "no answer about the write's effect");
    return api_.create(path, body);
  }
  /// Lets some of the late writes arrive, in random order.
  void arrive(std::size_t most) {
    for (; most > 0; --most) {
      std::pair<std::string, std::string> one;
      {
        const std::lock_guard lock(mutex_);
        if (late_.empty()) return;
        const auto at = random_() % late_.size();
        one = std::move(late_[at]);
        late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(at));
      }
      (void)api_.create(one.first, one.second);
    }
  }

 private:
  std::mutex mutex_;
  std::mt19937 random_;
  std::vector<std::pair<std::string, std::string>> late_;
};

/// A cluster with a model that watches the server.
struct Cluster : Leading {
  std::vector<std::jthread> watches;

  Cluster() : Leading({gpu("n1", "GPU-0"), gpu("n1", "GPU-1")}) { EXPECT_TRUE(leader.leads_until(clock.now())); }
  ~Cluster() {
    for (auto& watch : watches) watch.request_stop();
  }
  void watch() {
    for (const auto& [path, sink] :
         {std::pair<std::string, KubeSink>{"/api/v1/nodes", model.nodes()}, {kGpus, model.gpus()},
          {"/api/v1/pods", model.pods()}})
      watches.emplace_back(
          [this, where = path, to = sink](const std::stop_token& stop) { api.watch(where, {}, to, stop); });
    ASSERT_TRUE(settled());
  }
  bool settled() { return api.wait_watches(3, 20s); }
  Binder binder(KubeApi& through) {
    return Binder({model, leader, through, clock, log, {}, binpack, [this](codec::EventNote one) {
                     record_event(std::move(one));
                   }});
  }
  void add(const std::string& uid, const std::string& gib = "4") { put(PodText{.uid = uid, .gib = gib}); }
  /// The sums of the pods' records, from the server's objects and not from the model.
  std::map<std::string, std::uint64_t> gib_by_card() {
    std::map<std::string, std::uint64_t> sums;
    const auto pods = api.list("/api/v1/pods", {});
    for (const auto& text : *pods) {
      const auto one = codec::parse_cluster_pod(text);
      if (one->node.empty()) continue;
      for (const auto& held : slices_of(*codec::decode_record(one->record)))
        sums[held.card.str()] += held.memory.count() >> 30U;
    }
    return sums;
  }
};

/// A call that another replica forwards, with the card that it chose.
std::string wishing(const std::string& uid, const std::string& card) {
  return codec::with_wish(call(uid), codec::encode_record(record_of(1, {slice(uid, card, 1)}).value()).value());
}

class BinderTest : public ::testing::Test {
 protected:
  void SetUp() override { cluster.watch(); }
  Cluster cluster;
  Binder binder = Binder(cluster.binder(cluster.api));
  std::size_t reserved() { return cluster.model.stats().reserved; }
};

TEST_F(BinderTest, BindsWithTheRecordInOneWrite) {
  cluster.add("a");
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(binder.bind(call("a")), kOk);
  const auto writes = cluster.api.writes();
  ASSERT_EQ(writes.size(), 2U) << "the Lease and the Binding";
  EXPECT_EQ(writes[1].path, pod_path("a") + "/binding");
  const auto pod = cluster.pod("a");
  EXPECT_EQ(pod.node, "n1");
  const auto record = codec::decode_record(pod.record);
  ASSERT_TRUE(record) << record.error().what;
  EXPECT_EQ(record->epoch, 1U);
  EXPECT_EQ(record->owner.uid, "a");
  EXPECT_TRUE(pod.ask.annotations.contains("ALIYUN_COM_GPU_MEM_IDX")) << "the dialect's projection";
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(reserved(), 0U) << "the record accounts for the room now";
  EXPECT_EQ(cluster.model.snapshot()->at("n1")->ledger.slices().size(), 1U);
  ASSERT_EQ(cluster.events.size(), 1U);
  EXPECT_FALSE(cluster.events[0].warning);
  EXPECT_THAT(
      cluster.events[0].message,
      ::testing::StartsWith("assigned on node n1: container c: 4 GiB and compute 0 (besteffort) of card GPU-0"));
}

TEST_F(BinderTest, IsBusyUntilTheBurstEnds) {
  EXPECT_FALSE(binder.busy());
  EXPECT_NE(binder.bind(call("unknown")), kOk);
  EXPECT_TRUE(binder.busy());
  cluster.clock.advance(Binder::kBurst - 1ms);
  EXPECT_TRUE(binder.busy());
  cluster.clock.advance(1ms);
  EXPECT_FALSE(binder.busy());
}

// A server under load takes longer than kBurst for one Binding.
TEST_F(BinderTest, IsBusyDuringASlowBinding) {
  class Slow final : public RelayedKubeApi {
   public:
    Slow(FakeKubeApi& api, std::function<void()> meanwhile) : RelayedKubeApi(api), meanwhile_(std::move(meanwhile)) {}
    Result<std::string> create(const std::string& path, const std::string& body) override {
      meanwhile_();
      return api_.create(path, body);
    }

   private:
    std::function<void()> meanwhile_;
  };
  cluster.add("a");
  ASSERT_TRUE(cluster.settled());
  const Binder* asked = nullptr;
  bool seen = false;
  Slow slow(cluster.api, [&] {
    cluster.clock.advance(Binder::kBurst + 1ms);
    seen = asked->busy();
  });
  Binder one = cluster.binder(slow);
  asked = &one;
  EXPECT_EQ(one.bind(call("a")), kOk);
  EXPECT_TRUE(seen);
  EXPECT_TRUE(one.busy()) << "in a burst the next call follows soon";
  cluster.clock.advance(Binder::kBurst);
  EXPECT_FALSE(one.busy());
}

TEST_F(BinderTest, UsesTheCardsThatAnotherReplicaChose) {
  cluster.add("a");
  cluster.add("b");
  cluster.add("c");
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(binder.bind(wishing("a", "GPU-1")), kOk);
  EXPECT_EQ(binder.bind(wishing("b", "GPU-0")), kOk);
  EXPECT_EQ(binder.bind(wishing("c", "GPU-7")), kOk) << "a missing card does not prevent the Binding";
  const auto card = [this](const std::string& uid) {
    return slices_of(*codec::decode_record(cluster.pod(uid).record));
  };
  EXPECT_EQ(card("a")[0].card, CardId("GPU-1"));
  EXPECT_EQ(card("b")[0].card, CardId("GPU-0"));
  EXPECT_EQ(card("a")[0].memory, Bytes::gib(4)) << "the pod's request, regardless of the wish";
}

TEST_F(BinderTest, WritesNothingWithoutLeading) {
  cluster.add("a");
  ASSERT_TRUE(cluster.settled());
  cluster.clock.advance(1h);
  EXPECT_THAT(binder.bind(call("a")), HasSubstr("does not lead"));
  EXPECT_EQ(cluster.api.writes().size(), 1U);
  EXPECT_EQ(binder.stats().refused, 1U);
}

TEST_F(BinderTest, ReportsMissingRoomInNumbersAndKeepsNothing) {
  cluster.add("a", "17");
  ASSERT_TRUE(cluster.settled());
  EXPECT_THAT(binder.bind(call("a")), HasSubstr("16 GiB < 17 GiB"));
  cluster.add("b");
  ASSERT_TRUE(cluster.settled());
  EXPECT_THAT(binder.bind(call("b", "nowhere")), HasSubstr("no card managed by Carve"));
  EXPECT_EQ(binder.bind(call("b")), kOk);
  cluster.api.fail_next({.verb = "create", .path = "binding", .code = Code::kPermissionDenied});
  cluster.add("c");
  ASSERT_TRUE(cluster.settled());
  EXPECT_THAT(binder.bind(call("c")), HasSubstr("injected"));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(binder.bind(call("gone")), HasSubstr(pod_path("gone") + ": not found")) << i;
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(reserved(), 0U);
}

TEST_F(BinderTest, ReadsThePodAfterALostAnswer) {
  cluster.add("a");
  ASSERT_TRUE(cluster.settled());
  cluster.api.fail_next({.verb = "create", .path = "binding", .code = Code::kDeadlineExceeded, .done = true});
  EXPECT_EQ(binder.bind(call("a")), kOk);
  EXPECT_EQ(binder.stats().found_bound, 1U);
  EXPECT_EQ(binder.bind(call("a")), kOk) << "the repeated call writes nothing";
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(cluster.model.snapshot()->at("n1")->ledger.slices().size(), 1U);
}

// A server also returns 500 and 503 for writes that etcd made, if their answer was lost.
TEST_F(BinderTest, TreatsAServerErrorAsUnknownOutcome) {
  cluster.add("a", "16");
  cluster.add("b", "16");
  cluster.add("c", "16");
  ASSERT_TRUE(cluster.settled());
  cluster.api.fail_next({.verb = "create", .path = "pods/a/binding", .code = Code::kInternal, .done = true});
  EXPECT_EQ(binder.bind(call("a")), kOk);
  EXPECT_EQ(binder.stats().found_bound, 1U);
  cluster.api.fail_next({.verb = "create", .path = "pods/b/binding", .code = Code::kInternal});
  EXPECT_THAT(binder.bind(call("b")), HasSubstr("injected"));
  EXPECT_EQ(binder.stats().unknown, 2U);
  EXPECT_EQ(binder.stats().failed, 0U);
  EXPECT_THAT(binder.bind(call("c")), HasSubstr("no room")) << "b's Binding may still take effect";
}

TEST_F(BinderTest, KeepsRoomWhileTheWriteMayTakeEffect) {
  cluster.add("a", "16");
  cluster.add("b", "16");
  cluster.add("c", "16");
  ASSERT_TRUE(cluster.settled());
  cluster.api.fail_next({.verb = "create", .path = "binding", .code = Code::kDeadlineExceeded});
  EXPECT_THAT(binder.bind(call("a")), HasSubstr("injected"));
  EXPECT_EQ(binder.bind(call("b")), kOk);
  EXPECT_THAT(binder.bind(call("c")), HasSubstr("no room")) << "a may still be bound to the second card";
  cluster.clock.advance(Binder::kWriteExpired - 1s);
  cluster.leader.step();
  binder.step();
  EXPECT_THAT(binder.bind(call("c")), HasSubstr("no room"));
  cluster.clock.advance(1s);
  binder.step();
  EXPECT_EQ(binder.stats().released, 1U);
  EXPECT_EQ(binder.bind(call("c")), kOk);
}

TEST_F(BinderTest, RepeatsAWriteWithTheSameRecord) {
  cluster.add("a");
  ASSERT_TRUE(cluster.settled());
  cluster.api.fail_next({.verb = "create", .path = "binding", .code = Code::kDeadlineExceeded});
  (void)binder.bind(call("a"));
  EXPECT_EQ(binder.bind(call("a")), kOk);
  const auto writes = cluster.api.writes();
  ASSERT_EQ(writes.size(), 3U);
  const auto record = [](const std::string& body) { return body.substr(body.find("\\\"v\\\""), 200); };
  EXPECT_EQ(record(writes[1].body), record(writes[2].body));
}

TEST_F(BinderTest, DistinguishesPodsByUid) {
  cluster.add("a");
  ASSERT_TRUE(cluster.settled());
  cluster.api.fail_next({.verb = "create", .path = "binding", .code = Code::kDeadlineExceeded});
  (void)binder.bind(call("a"));
  cluster.api.erase(pod_path("a"));
  cluster.api.put(pod_path("a"), pod_object({.uid = "other"}));
  ASSERT_TRUE(cluster.settled());
  EXPECT_THAT(binder.bind(call("a")), ::testing::Not(kOk));
  cluster.clock.advance(3s);
  binder.step();
  EXPECT_EQ(reserved(), 0U);
  EXPECT_EQ(cluster.pod("a").node, "");
}

/// The watch is behind the server: it may still show that the pod was bound before it was deleted. Until then, and
/// while the pod lingers on its node after that, no other pod gets the room.
TEST_F(BinderTest, KeepsRoomOfADeletedPodUntilTheWatchShowsIt) {
  ClusterModel model{{}, cluster.clock, cluster.log};
  cluster.add("a", "16");
  sync(model, cluster.api);
  const auto pods = model.pods();
  Binder other({model, cluster.leader, cluster.api, cluster.clock, cluster.log, {}, binpack, {}});
  cluster.api.fail_next({.verb = "create", .path = "binding", .code = Code::kDeadlineExceeded, .done = true});
  cluster.api.fail_next({.verb = "get", .path = "pods/a", .code = Code::kUnavailable});
  EXPECT_THAT(other.bind(call("a")), ::testing::Not(kOk));
  const auto bound = *cluster.api.object(pod_path("a"));
  cluster.api.erase(pod_path("a"));
  cluster.clock.advance(3s);
  cluster.leader.step();
  other.step();
  EXPECT_EQ(model.stats().reserved, 1U) << "deleted at the server, and not yet in the watch";
  pods.change({KubeChange::Kind::kPut, bound});
  pods.change({KubeChange::Kind::kDeleted, bound});
  EXPECT_EQ(model.stats().reserved, 0U);
  EXPECT_EQ(model.stats().conflicts_seen, 0U);
}

TEST_F(BinderTest, BindsAPodWithoutCardsWithoutARecord) {
  cluster.add("a", "0");
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(binder.bind(call("a")), kOk);
  EXPECT_EQ(cluster.pod("a").node, "n1");
  EXPECT_EQ(cluster.pod("a").record, "");
}

// A pod of an excluded namespace: kube-scheduler sends its Binding here if it is configured with our resource names.
TEST_F(BinderTest, BindsAPodWithoutSlotsWithoutARecordAndWithoutRoom) {
  for (const auto* uid : {"a", "b", "c"}) {
    cluster.api.put(pod_path(uid), pod_object({.uid = uid, .gib = "16", .slots = false}));
    ASSERT_TRUE(cluster.settled());
    EXPECT_EQ(binder.bind(call(uid)), kOk) << "two cards of 16 GiB would be full";
    EXPECT_EQ(cluster.pod(uid).node, "n1");
    EXPECT_EQ(cluster.pod(uid).record, "");
    EXPECT_EQ(binder.bind(call(uid)), kOk) << "the answer was lost";
  }
  EXPECT_EQ(reserved(), 0U);
  ASSERT_TRUE(cluster.settled());
  cluster.add("d", "16");
  ASSERT_TRUE(cluster.settled());
  EXPECT_EQ(binder.bind(call("d")), kOk) << "the other pods hold nothing";
}

/// 64 concurrent calls to a server that is late, loses answers and refuses, while some pods are deleted: no card is
/// overcommitted, and at rest no room is set aside.
TEST(BinderRace, OvercommitsNoCardAndLeaksNoRoom) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    Cluster cluster;
    for (const auto* uuid : {"GPU-2", "GPU-3"}) cluster.put(gpu("n1", uuid));
    cluster.watch();
    Unsure unsure(cluster.api, seed);
    Binder binder = cluster.binder(unsure);
    std::vector<std::string> uids;
    for (int i = 0; i < 64; ++i) {
      uids.push_back("p" + std::to_string(i));
      cluster.add(uids.back(), std::to_string(1 + (i * 7 + static_cast<int>(seed)) % 5));
    }
    ASSERT_TRUE(cluster.settled());
    std::atomic<int> bound = 0;
    for (int round = 0; round < 3; ++round) {
      {
        std::vector<std::jthread> all;
        for (const auto& uid : uids) {
          all.emplace_back([&, uid] { bound += binder.bind(call(uid)) == kOk ? 1 : 0; });
        }
        unsure.arrive(4);
      }
      unsure.arrive(seed % 5);
      if (round == 1) {
        for (std::size_t i = seed % 3; i < uids.size(); i += 9) cluster.api.erase(pod_path(uids[i]));
      }
      cluster.clock.advance(3s);
      cluster.leader.step();
      binder.step();
      for (const auto& [card, gib] : cluster.gib_by_card()) ASSERT_LE(gib, 16U) << card << ", seed " << seed;
    }
    unsure.arrive(1000);
    ASSERT_TRUE(cluster.settled());
    cluster.clock.advance(Binder::kWriteExpired);
    binder.step();
    ASSERT_TRUE(cluster.settled());
    cluster.model.expire();  // no agent reports the end of the deleted pods' slices
    const auto stats = cluster.model.stats();
    EXPECT_EQ(stats.reserved, 0U) << "seed " << seed;
    EXPECT_EQ(stats.conflicts_seen, 0U) << "seed " << seed;
    EXPECT_GT(bound, 20);
    const auto state = cluster.model.snapshot();
    std::map<std::string, std::uint64_t> seen;
    for (const auto& card : state->at("n1")->ledger.cards()) {
      if (card.use.slices > 0) seen[card.card.id.str()] = card.use.memory.count() >> 30U;
    }
    EXPECT_EQ(seen, cluster.gib_by_card()) << "seed " << seed;
  }
}

/// A leader is stopped between its check and its write, for longer than its Lease: the next leader has assigned the
/// card when the old Binding arrives. The model reports the conflict and closes the card.
TEST(BinderRace, ReportsALateBindingOfTheOldLeaderAsAConflict) {
  Cluster cluster;
  cluster.watch();
  cluster.add("late", "16");
  cluster.add("next", "16");
  cluster.add("more", "16");
  ASSERT_TRUE(cluster.settled());
  const auto old = record_text({slice("late", "GPU-0", 16)}, 1);
  cluster.clock.advance(11s);
  Leader leader({cluster.api, cluster.clock, cluster.log, {}, {}}, {.identity = "next"});
  leader.step();
  cluster.clock.advance(11s);
  leader.step();
  ASSERT_EQ(leader.epoch(), 2U);
  Binder binder({cluster.model, leader, cluster.api, cluster.clock, cluster.log, {}, binpack, {}});
  Binder stopped = cluster.binder(cluster.api);
  EXPECT_THAT(stopped.bind(call("more")), HasSubstr("does not lead"));
  EXPECT_EQ(binder.bind(call("next")), kOk);
  ASSERT_TRUE(cluster.api.create(pod_path("late") + "/binding",
                                 fmt::format(R"({{"metadata":{{"uid":"late","annotations":{{"{}":{}}}}},)"
                                             R"("target":{{"kind":"Node","name":"n1"}}}})",
                                             codec::kRecordAnnotation, quoted(old))));
  ASSERT_TRUE(cluster.settled());
  const auto conflicts = cluster.model.conflicts();
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].second.owner.uid, "late") << "the record with the older epoch is the conflict";
  EXPECT_EQ(binder.bind(call("more")), kOk) << "the other card";
  EXPECT_THAT(cluster.model.snapshot()->at("n1")->ledger.find(CardId("GPU-0"))->card.closed, HasSubstr("late"));
}

}  // namespace
}  // namespace carve::control
