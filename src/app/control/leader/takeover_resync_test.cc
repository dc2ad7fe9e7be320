#include "app/control/leader/takeover_resync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "app/control/leader/leader.h"
#include "app/control/testing/objects.h"
#include "port/testing/fake_kube_api.h"
#include "port/testing/relayed_kube_api.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using carve::testing::FakeKubeApi;
using carve::testing::RelayedKubeApi;

std::string path_of(const std::string& uid) { return "/api/v1/namespaces/s/pods/" + uid; }

std::string decided(const std::string& uid) {
  return pod_object({.uid = uid, .node = "n1", .record = record_text({slice(uid, "GPU-0", 1)})});
}

class TakeoverResyncTest : public ::testing::Test {
 protected:
  void sync() {
    model.nodes().replace({});
    model.gpus().replace({});
    model.pods().replace({});
  }
  /// The work of both threads, one after the other.
  Result<bool> round(TakeoverResync& one, std::uint64_t term) {
    static_cast<void>(one(term));
    one.step();
    return one(term);
  }
  FakeKubeApi api;
  ManualClock clock;
  Log log{[](std::string_view) {}};
  ClusterModel model{{}, clock, log};
  TakeoverResync resync{api, model, clock};
};

TEST_F(TakeoverResyncTest, WaitsUntilTheModelShowsEveryDecision) {
  EXPECT_FALSE(*round(resync, 1)) << "the model is not synced yet";
  sync();
  const auto pod = api.put(path_of("a"), decided("a"));
  EXPECT_FALSE(*resync(1)) << "no round has run yet";
  EXPECT_FALSE(*round(resync, 1)) << "a decision that the watch has not shown";
  clock.advance(TakeoverResync::kPatience);
  EXPECT_FALSE(*round(resync, 1)) << "and the pod still exists";
  model.pods().change({KubeChange::Kind::kPut, pod});
  EXPECT_TRUE(*round(resync, 1));
  api.put(path_of("b"), decided("b"));
  EXPECT_FALSE(*round(resync, 2)) << "each term makes a new list";
  EXPECT_EQ(api.calls("list"), 2U);
}

TEST_F(TakeoverResyncTest, ReportsAnErrorAndRetries) {
  sync();
  api.fail_next({.verb = "list", .path = "pods", .code = Code::kPermissionDenied});
  EXPECT_EQ(round(resync, 1).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(*round(resync, 1));
}

/// A slow list in a cluster with much churn: some of its pods are deleted by the time it is complete.
class Churning final : public RelayedKubeApi {
 public:
  Churning(FakeKubeApi& api, ManualClock& clock) : RelayedKubeApi(api), server_(api), clock_(clock) {}
  Result<std::vector<std::string>> list(const std::string& path, const Query& query) override {
    auto all = api_.list(path, query);
    clock_.advance(5s);
    server_.erase(path_of("p" + std::to_string(gone_)));
    server_.erase(path_of("q" + std::to_string(gone_)));
    server_.put(path_of("q" + std::to_string(gone_)), decided("namesake" + std::to_string(gone_)));
    ++gone_;
    return all;
  }

 private:
  FakeKubeApi& server_;
  ManualClock& clock_;
  int gone_ = 0;
};

TEST_F(TakeoverResyncTest, DoesNotWaitForAPodThatWasDeletedDuringTheList) {
  sync();
  for (int i = 0; i < 20; ++i) {
    const auto name = std::to_string(i);
    // The watch shows all pods except those that are deleted right after the list.
    for (const auto& uid : {"p" + name, "q" + name}) {
      const auto pod = api.put(path_of(uid), decided(uid));
      if (i > 0) model.pods().change({KubeChange::Kind::kPut, pod});
    }
  }
  Churning churning(api, clock);
  TakeoverResync one(churning, model, clock);
  EXPECT_FALSE(*round(one, 1));
  clock.advance(TakeoverResync::kPatience);
  EXPECT_TRUE(*round(one, 1));
  EXPECT_EQ(api.calls("list"), 1U) << "after another list other pods would be gone";
  EXPECT_EQ(api.calls("get"), 2U) << "the deleted pod, and the pod with the reused name";
}

TEST_F(TakeoverResyncTest, RenewsTheLeaseDuringALongList) {
  sync();
  FakeKubeApi leases;
  const auto known = [this](std::uint64_t term) { return resync(term); };
  Leader leader({leases, clock, log, {}, known}, {.identity = "me"});
  Leader other({leases, clock, log, {}, {}}, {.identity = "other"});
  api.set_stalled(true);
  const std::jthread finding([this](const std::stop_token& stop) { resync.run(stop); });
  for (int i = 0; i < 60; ++i) {
    leader.step();
    other.step();
    ASSERT_EQ(leader.epoch(), 0U);
    ASSERT_EQ(other.epoch(), 0U) << "after " << i / 2 << " s";
    clock.advance(500ms);
  }
  EXPECT_EQ(leader.terms(), 1U);
  api.set_stalled(false);
  for (int i = 0; i < 5000 && leader.epoch() == 0; ++i) {
    leader.step();
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(leader.epoch(), 1U) << "it never lost the Lease";
}

}  // namespace
}  // namespace carve::control
