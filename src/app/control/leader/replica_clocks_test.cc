#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>

#include "app/control/bind/binder.h"
#include "app/control/leader/takeover_resync.h"
#include "app/control/leader/epochs.h"
#include "app/control/schedule/extender.h"
#include "app/control/leader/leader.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/testing/leading.h"
#include "codec/record.h"
#include "port/testing/relayed_kube_api.h"

// RA-3: the clocks of two replicas differ by five seconds. Regardless of these clocks, the same pods get the same
// cards, no epoch is used twice, and the server rejects a past leader's record.
namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;
using carve::testing::FakeKubeApi;
using carve::testing::RelayedKubeApi;

constexpr auto kLease = "/apis/coordination.k8s.io/v1/namespaces/carve-system/leases/carve-control";
constexpr char kOk[] = R"({"Error":""})";

/// The clocks of another machine: they run at the same rate and show a different time.
class ShiftedClock final : public Clock {
 public:
  ShiftedClock(ManualClock& real, Duration since_boot, Duration wall)
      : real_(real), since_boot_(since_boot), wall_(wall) {}
  [[nodiscard]] Time now() const override { return real_.now() + since_boot_; }
  [[nodiscard]] WallTime wall_now() const override { return real_.wall_now() + wall_; }
  bool sleep_until(Time deadline, const std::stop_token& stop) override {
    return real_.sleep_until(deadline - since_boot_, stop);
  }

 private:
  ManualClock& real_;
  Duration since_boot_;
  Duration wall_;
};

/// A server that enforces deploy/control/leader-policy.yaml: it refuses a record below the Lease's epoch.
class Fenced final : public RelayedKubeApi {
 public:
  explicit Fenced(FakeKubeApi& server) : RelayedKubeApi(server), server_(server) {}
  Result<std::string> create(const std::string& path, const std::string& body) override {
    constexpr std::string_view kEpoch = R"(\"epoch\":)";
    const auto at = body.find(kEpoch);
    if (!path.ends_with("/binding") || at == std::string::npos) return api_.create(path, body);
    const auto epoch = std::stoull(body.substr(at + kEpoch.size()));
    const auto lease = server_.object(kLease);
    if (lease && epoch < static_cast<std::uint64_t>(codec::parse_lease(*lease)->transitions)) {
      ++refused;
      return fail(Code::kPermissionDenied, "this record was decided by a past leader");
    }
    auto written = api_.create(path, body);
    if (written) accepted.push_back(epoch);
    return written;
  }

  std::vector<std::uint64_t> accepted;  // epochs of the records in the order of the writes
  int refused = 0;

 private:
  FakeKubeApi& server_;
};

/// One replica, wired as in cmd/control_main.cc; sync() of leading.h replaces its watches.
struct Replica {
  Replica(KubeApi& server, ManualClock& real, Clock::Duration since_boot, Clock::Duration wall, std::string name)
      : api(server), clock(real, since_boot, wall), names{.identity = std::move(name)} {}

  /// The node that kube-scheduler would choose after this replica's answer; empty: none.
  std::string choose(const std::string& uid) {
    const auto call = R"({"Pod":)" + *api.get(pod_path(uid), {}) + R"(,"NodeNames":["n1","n2","n3"]})";
    const auto scores = extender.prioritize(call);
    const auto at = scores.find(R"(","Score":10)");
    if (at == std::string::npos) return {};
    const auto from = scores.rfind('"', at - 1) + 1;
    return scores.substr(from, at - from);
  }
  bool bind(const std::string& uid, const std::string& node) {
    const auto call = fmt::format(R"({{"PodName":"{}","PodNamespace":"s","PodUID":"{}","Node":"{}"}})", uid, uid, node);
    said = binder.bind(call);
    return said == kOk;
  }
  [[nodiscard]] bool leads() const { return leader.leads_until(clock.now()); }
  /// The work of both threads, one after the other.
  Result<bool> caught_up(std::uint64_t term) {
    static_cast<void>(resync(term));
    resync.step();
    return resync(term);
  }

  KubeApi& api;
  ShiftedClock clock;
  Leader::Names names;
  Log log{[](std::string_view) {}};
  ClusterModel model{{}, clock, log};
  TakeoverResync resync{api, model, clock};
  Leader leader{{api, clock, log, [this] { return epochs_so_far(model, clock); },
                 [this](std::uint64_t term) { return caught_up(term); }},
                names};
  std::shared_ptr<const PlacementRules> rules = std::make_shared<PlacementRules>(rules_of(kPolicies[0]));
  Extender extender{{}, [this] { return rules; }, [this] { return model.snapshot(); }, {}, &clock};
  Binder binder{{model, leader, api, clock, log, {}, binpack, {},
                 [this](const Owner& owner, const std::string& node) { return extender.sent_for(owner, node); }}};
  std::string said;
};

struct Cluster {
  FakeKubeApi server;
  Fenced api{server};
  ManualClock real;

  Cluster() {
    for (const std::string node : {"n1", "n2", "n3"}) {
      server.put("/api/v1/nodes/" + node, node_object(node));
      for (const auto* card : {"0", "1"}) {
        const auto made = gpu(node, "GPU-" + node + "-" + card);
        server.put(std::string(kGpus) + "/" + made.name, gpu_object(made));
      }
    }
  }
  std::unique_ptr<Replica> replica(const std::string& name, Clock::Duration since_boot, Clock::Duration wall) {
    auto made = std::make_unique<Replica>(api, real, since_boot, wall, name);
    sync(made->model, made->api);
    return made;
  }
  /// From the server's objects: pod → node and cards; `gib`: the sum per card.
  std::map<std::string, std::string> placed(std::map<std::string, std::uint64_t>* gib) const {
    std::map<std::string, std::string> all;
    const auto pods = const_cast<FakeKubeApi&>(server).list("/api/v1/pods", {});
    for (const auto& text : *pods) {
      const auto pod = codec::parse_cluster_pod(text);
      if (pod->node.empty()) continue;
      for (const auto& held : slices_of(*codec::decode_record(pod->record))) {
        all[pod->ask.uid] += pod->node + " " + held.card.str() + ";";
        if (gib != nullptr) (*gib)[held.card.str()] += held.memory.count() >> 30U;
      }
    }
    return all;
  }
};

/// The clock of the first leader is ahead, and it has written nothing: only the Lease contains its epoch, and the Lease
/// is deleted.
TEST(ReplicaClocks, NextEpochIsHigherEvenIfTheNextClockIsBehind) {
  Cluster cluster;
  cluster.real.advance(1h);
  const auto ahead = cluster.replica("ahead", 3h, 60s);
  const auto behind = cluster.replica("behind", 0s, 0s);
  for (int i = 0; i < 4; ++i) {
    ahead->leader.step();
    behind->leader.step();
  }
  ASSERT_TRUE(ahead->leads());
  cluster.server.erase(kLease);
  for (int i = 0; i < 24; ++i) {
    cluster.real.advance(500ms);
    behind->leader.step();
    ASSERT_FALSE(ahead->leads() && behind->leads());
  }
  ASSERT_TRUE(behind->leads());
  EXPECT_GT(behind->leader.epoch(), ahead->leader.epoch());
}

/// The API server's policy (leader-policy.yaml) with the record of a leader that was stopped between its last check and
/// its write.
TEST(ReplicaClocks, ServerRejectsARecordOfAPastLeader) {
  for (const auto wall : {5s, -5s}) {
    Cluster cluster;
    cluster.real.advance(1h);
    const auto past = cluster.replica("past", 0s, wall);
    const auto next = cluster.replica("next", 0s, 0s);
    for (int i = 0; i < 4; ++i) past->leader.step();
    const auto old = record_text({slice("a", "GPU-n1-0", 16)}, past->leader.epoch());
    for (int i = 0; i < 24; ++i) {
      cluster.real.advance(500ms);
      next->leader.step();
    }
    ASSERT_TRUE(next->leads());
    cluster.server.put(pod_path("a"), pod_object({.uid = "a", .gib = "16"}));
    const auto late = cluster.api.create(
        pod_path("a") + "/binding",
        fmt::format(R"({{"metadata":{{"uid":"a","annotations":{{"{}":{}}}}},"target":{{"kind":"Node","name":"n1"}}}})",
                    codec::kRecordAnnotation, quoted(old)));
    ASSERT_FALSE(late);
    EXPECT_THAT(late.error().what, HasSubstr("past leader"));
    EXPECT_TRUE(next->bind("a", "n1"));
  }
}

struct Outcome {
  std::map<std::string, std::string> placed;
  int terms = 0;
  int bound = 0;
};

/// Pods are created and deleted, watches lag, leaders stop, their Lease is deleted, replicas restart. The sequence of
/// events and their times are the same for every `wall` and `since_boot`.
void play(unsigned seed, Clock::Duration since_boot, Clock::Duration wall, Outcome* outcome) {
  Cluster cluster;
  std::mt19937 random(seed);
  const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  cluster.real.advance(1h);
  const Clock::Duration boots[] = {0s, since_boot};
  const Clock::Duration walls[] = {0s, wall};
  int starts = 0;
  const auto start = [&](unsigned i) {
    return cluster.replica("replica-" + std::to_string(starts++), boots[i], walls[i]);
  };
  std::unique_ptr<Replica> replicas[] = {start(0), start(1)};
  for (const int i : {0, 1, 0, 1}) replicas[i]->leader.step();
  int stopped[] = {0, 0};
  auto calm = cluster.real.now();  // no Lease is deleted before this time: see below
  std::map<std::uint64_t, std::string> leader_of_epoch;
  int pods = 0;
  for (int step = 0; step < 150; ++step) {
    const unsigned one = pick(2);
    const unsigned what = pick(24);
    if (what < 12) {
      const auto uid = "p" + std::to_string(pods++);
      cluster.server.put(pod_path(uid), pod_object({.uid = uid, .gib = std::to_string(1 + pick(8))}));
    } else if (what < 18 && pods > 0) {
      cluster.server.erase(pod_path("p" + std::to_string(pick(static_cast<unsigned>(pods)))));
    } else if (what == 18) {
      stopped[one] = static_cast<int>(pick(40));
    } else if (what == 19) {
      // Not within seconds of a deleted Lease: a starting replica would take the cluster for a new one.
      if (cluster.server.object(kLease)) {
        replicas[one] = start(one);
        stopped[one] = 0;
        calm = cluster.real.now() + 10s;
      }
    } else if (what >= 22 && cluster.real.now() >= calm) {
      cluster.server.erase(kLease);
    }
    for (unsigned i = 0; i < 2; ++i) {
      const bool lags = pick(3) == 0;
      if (stopped[i] > 0) {
        --stopped[i];
      } else if (!lags) {
        sync(replicas[i]->model, replicas[i]->api);
      }
    }
    for (int look = 0; look < 6; ++look) {
      if (stopped[look % 2] == 0) replicas[look % 2]->leader.step();
    }
    for (unsigned i = 0; i < 2; ++i) {
      if (stopped[i] == 0) replicas[i]->binder.step();
    }
    for (const auto& replica : replicas) {
      if (!replica->leads()) continue;
      const auto [at, fresh] = leader_of_epoch.emplace(replica->leader.epoch(), replica->names.identity);
      ASSERT_EQ(at->second, replica->names.identity) << "seed " << seed << ": epoch " << at->first << " twice";
      outcome->terms += fresh ? 1 : 0;
    }
    ASSERT_FALSE(replicas[0]->leads() && replicas[1]->leads()) << "seed " << seed << ", step " << step;
    const auto placed = cluster.placed(nullptr);
    for (int i = 0; i < pods; ++i) {
      const auto uid = "p" + std::to_string(i);
      if (placed.contains(uid) || !cluster.server.object(pod_path(uid))) continue;
      const unsigned asked = pick(2);
      const auto node = replicas[asked]->choose(uid);
      if (node.empty()) continue;
      // Every replica that believes that it leads gets the call, including a past leader.
      for (const unsigned j : {asked, 1 - asked}) {
        if (!replicas[j]->leads() || !replicas[j]->bind(uid, node)) continue;
        ++outcome->bound;
        break;
      }
    }
    std::map<std::string, std::uint64_t> gib;
    outcome->placed = cluster.placed(&gib);
    for (const auto& [card, sum] : gib)
      ASSERT_LE(sum, 16U) << card << " is overcommitted, seed " << seed << ", step " << step;
    cluster.real.advance(std::chrono::milliseconds(100 + pick(900)));
  }
  EXPECT_EQ(cluster.api.refused, 0) << "each past leader detected by itself that it no longer leads";
  EXPECT_TRUE(std::is_sorted(cluster.api.accepted.begin(), cluster.api.accepted.end())) << "seed " << seed;
  cluster.real.advance(Binder::kWriteExpired);
  for (const auto& replica : replicas) {
    sync(replica->model, replica->api);
    replica->binder.step();
  }
  cluster.real.advance(ClusterModel::kLinger);
  for (auto& replica : replicas) replica->model.expire();
  for (const auto& replica : replicas) {
    EXPECT_EQ(replica->model.stats().reserved, 0U);
    EXPECT_EQ(replica->model.stats().conflicts, 0U);
  }
  const auto a = replicas[0]->model.snapshot();
  const auto b = replicas[1]->model.snapshot();
  for (const std::string node : {"n1", "n2", "n3"})
    EXPECT_TRUE(a->at(node)->ledger.slices() == b->at(node)->ledger.slices())
        << "the replicas' ledgers differ at rest, seed " << seed;
}

TEST(ReplicaClocks, DecideNothing) {
  int terms = 0;
  int bound = 0;
  const unsigned seeds = std::getenv("CARVE_SOAK") != nullptr ? 6 : 3;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    Outcome same;
    play(seed, 0s, 0s, &same);
    if (HasFatalFailure()) return;
    for (const auto& [since_boot, wall] : {std::pair<Clock::Duration, Clock::Duration>{0s, 5s}, {0s, -5s}, {72h, 5s}}) {
      Outcome other;
      play(seed, since_boot, wall, &other);
      if (HasFatalFailure()) return;
      ASSERT_EQ(other.placed, same.placed) << "seed " << seed << ", clocks apart by " << wall / 1s << " s";
      ASSERT_EQ(other.terms, same.terms) << "seed " << seed;
    }
    terms += same.terms;
    bound += same.bound;
  }
  EXPECT_GT(terms, 9) << "the test covered too few terms";
  EXPECT_GT(bound, 90);
}

}  // namespace
}  // namespace carve::control
