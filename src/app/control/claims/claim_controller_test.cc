#include "app/control/claims/claim_controller.h"

#include <gmock/gmock.h>

#include "app/control/testing/leading.h"
#include "codec/claims/elastic_objects.h"
#include "core/cluster/cluster.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kClaimsOfS = "/apis/elasticgpu.io/v1alpha1/namespaces/s/elasticgpuclaims";

class ClaimControllerTest : public ::testing::Test, protected Leading {
 protected:
  ClaimControllerTest() : Leading({gpu("n1", "GPU-1"), gpu("n2", "GPU-2", 8)}) {
    sync(model, api);
    feed();
  }
  void put_class(const std::string& more = "") {
    api.put(std::string(codec::kElasticGpuClasses) + "/c",
            R"({"metadata":{"name":"c"},"provisioner":"elasticgpu.io/qgpu")" + more + "}");
  }
  void put_claim(const std::string& name, int gib) {
    api.put(std::string(kClaimsOfS) + "/" + name,
            fmt::format(
                R"({{"metadata":{{"namespace":"s","name":"{}","uid":"uid-{}"}},"spec":{{"elasticGPUClassName":"c",)"
                R"("resources":{{"requests":{{"elasticgpu.io/gpu-memory":"{}","elasticgpu.io/gpu-core":"10"}}}}}}}})",
                name, name, gib * 1024));
  }
  /// A pod that uses the claim; `more`: of the spec, or a record.
  codec::ClusterPod put_pod(const std::string& uid, const std::string& claim, const std::string& node = "",
                            const std::string& record = "") {
    const auto text = fmt::format(
        R"({{"metadata":{{"name":"{0}","namespace":"s","uid":"{0}",)"
        R"("annotations":{{"elasticgpu.io/egpuc-c":"{1}"{2}}}}},)"
        R"("spec":{{{3}"containers":[{{"name":"c","resources":{{"limits":{{"elasticgpu.io/slot":"1"}}}}}}]}},)"
        R"("status":{{"phase":"Pending"}}}})",
        uid, claim,
        record.empty() ? "" : fmt::format(",{}:{}", quoted(std::string(codec::kRecordAnnotation)), quoted(record)),
        node.empty() ? "" : fmt::format(R"("nodeName":"{}",)", node));
    model.pods().change({KubeChange::Kind::kPut, text});
    return *codec::parse_cluster_pod(text);
  }
  /// The watches deliver the stored objects.
  void feed() {
    classes.replace(*api.list(std::string(codec::kElasticGpuClasses)));
    gpus.replace(*api.list(std::string(codec::kElasticGpus)));
    claims.replace(*api.list(std::string(kClaimsOfS)));
  }
  void settle() {
    for (int i = 0; i < 12; ++i) {
      leader.step();
      controller.step();
      feed();
    }
  }
  ElasticClaim claim(const std::string& name) {
    return *codec::parse_elastic_claim(*api.object(std::string(kClaimsOfS) + "/" + name), {});
  }
  /// What a pod that takes its claims gets on its node; else why not.
  std::string placed(const codec::ClusterPod& pod) {
    const auto parts = requests.take(pod.ask);
    if (!parts) return parts.error().what;
    controller.reserve_rooms();
    const auto found = fit(*model.snapshot(), {OwnerKind::kPod, pod.ask.uid}, *parts, {"n1", "n2"}, kPolicies[0]);
    return found.nodes.empty() ? explain(found.refused)
                               : found.nodes.front().node + ": " + to_human(parts->front().request);
  }
  std::string why_not(std::uint64_t gib) {
    Request request;
    request.memory = MemoryAsk::of(Bytes::gib(gib));
    request.compute = CoreShare();
    request.share = ShareClass::kBestEffort;
    const auto found = fit(*model.snapshot(), {OwnerKind::kPod, "other"}, {{"c", Phase::kRun, request}}, {"n1"},
                           kPolicies[0], 1'000'000);
    return found.refused.empty() ? "" : found.refused.front().why;
  }

  ClaimBook book{{}, log};
  PodRequests requests{{}, &book};
  KubeSink classes = book.classes();
  KubeSink gpus = book.gpus();
  KubeSink claims = book.claims();
  ClusterModel model{requests, clock, log};  // instead of Leading's: it knows the claims
  ClaimController controller{
      {book, model, leader, api, clock, log, binpack, [this](codec::EventNote one) { record_event(std::move(one)); }}};
};

TEST_F(ClaimControllerTest, WithoutObjectsItCallsNothing) {
  leader.step();
  controller.step();
  const auto before = api.calls("list") + api.calls("get");
  for (int i = 0; i < 3; ++i) controller.step();
  EXPECT_EQ(api.calls("list") + api.calls("get"), before);
  for (const auto& write : api.writes()) EXPECT_THAT(write.path, ::testing::Not(HasSubstr("elasticgpu")));
}

TEST_F(ClaimControllerTest, ABoundClaimKeepsItsRoomWithoutAPod) {
  put_class();
  put_claim("k", 4);
  settle();
  EXPECT_EQ(claim("k").phase, "Bound");
  EXPECT_EQ(claim("k").gpu, "egpu-uid-k");
  const auto made = *codec::parse_elastic_gpu(*api.object(std::string(codec::kElasticGpus) + "/egpu-uid-k"), {});
  EXPECT_EQ(made.node, "n2") << "binpack: the smaller card";
  EXPECT_EQ(made.phase, "Bound");
  put_claim("large", 12);
  settle();
  EXPECT_THAT(why_not(5), HasSubstr("largest free slice 4 GiB < 5 GiB")) << "for a pod of any priority";
  EXPECT_EQ(why_not(4), "");
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().reason, "Bound");
}

TEST_F(ClaimControllerTest, APodGetsTheClaimsRoomAndGivesItBack) {
  put_class();
  put_claim("k", 12);
  settle();
  const auto pod = put_pod("p", "k");
  EXPECT_EQ(placed(pod), "n1: 12 GiB, compute 10, node");
  EXPECT_THAT(why_not(5), HasSubstr("largest free slice 4 GiB"));
  const auto second = put_pod("q", "k");
  EXPECT_EQ(placed(second), "container c: claim k: 1 pod(s) use it, and class c permits 1");
  // Its record is booked instead of the reservation.
  Slice held = slice("p", "GPU-1", 12);
  put_pod("p", "k", "n1", record_text({held}));
  settle();
  EXPECT_THAT(why_not(5), HasSubstr("largest free slice 4 GiB"));
  EXPECT_EQ(why_not(4), "");
  // The pod is gone: the claim keeps the room, and the next pod gets it.
  model.pods().change({KubeChange::Kind::kDeleted, R"({"metadata":{"name":"p","namespace":"s","uid":"p"}})"});
  settle();
  EXPECT_THAT(why_not(5), HasSubstr("largest free slice 4 GiB"));
  clock.advance(ClusterModel::kLinger + 1s);
  model.expire();
  settle();
  EXPECT_EQ(placed(second), "n1: 12 GiB, compute 10, node");
}

TEST_F(ClaimControllerTest, TheClassStatesHowManyPodsShareAClaim) {
  put_class(R"(,"parameters":{"pods":"2"})");
  put_claim("k", 12);
  settle();
  EXPECT_EQ(placed(put_pod("p", "k")), "n1: 6 GiB, compute 5, node");
  EXPECT_EQ(placed(put_pod("q", "k")), "n1: 6 GiB, compute 5, node");
  EXPECT_THAT(placed(put_pod("r", "k")), HasSubstr("class c permits 2"));
  EXPECT_THAT(why_not(5), HasSubstr("largest free slice 4 GiB"));
}

TEST_F(ClaimControllerTest, AClaimThatWaitsIsBoundToTheCardOfItsFirstPod) {
  put_class(R"(,"bindingMode":"WaitForFirstConsumer")");
  put_claim("k", 4);
  settle();
  EXPECT_EQ(claim("k").phase, "Pending");
  EXPECT_EQ(claim("k").message, "waits for the first pod that uses it");
  const auto pod = put_pod("p", "k");
  EXPECT_THAT(placed(pod), HasSubstr("4 GiB, compute 10, node"));
  put_pod("p", "k", "n1", record_text({slice("p", "GPU-1", 4)}));
  settle();
  EXPECT_EQ(claim("k").phase, "Bound");
  const auto made = codec::parse_elastic_gpu(*api.object(std::string(codec::kElasticGpus) + "/egpu-uid-k"), {});
  EXPECT_EQ(made->cards, std::vector<std::string>{"GPU-1"});
}

TEST_F(ClaimControllerTest, AClaimThatCannotBeUsedSaysWhy) {
  EXPECT_EQ(placed(put_pod("p", "absent")),
            "container c: claim absent: there is no ElasticGPUClaim of this name in namespace s");
  put_claim("k", 4);
  settle();
  EXPECT_EQ(placed(put_pod("q", "k")), "container c: claim k: it is not bound: class c does not exist");
  put_class();
  put_claim("huge", 17);
  settle();
  EXPECT_THAT(claim("huge").message, HasSubstr("total memory 16 GiB < 17 GiB"));
}

TEST_F(ClaimControllerTest, AStaticElasticGpuIsFoundByTheIndexOfItsCard) {
  put_class();
  api.put(
      std::string(codec::kElasticGpus) + "/card-0-slice",
      R"({"metadata":{"name":"card-0-slice"},"spec":{"capacity":{"elasticgpu.com/gpu-core":10,)"
      R"("elasticgpu.com/gpu-memory":4096},"gpuShare":{"gpuName":"gpu-0"},"nodeAffinity":{"required":{)"
      R"("nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In",)"
      R"("values":["n1"]}]}]}}}})");
  feed();
  settle();
  put_claim("k", 4);
  settle();
  EXPECT_EQ(claim("k").gpu, "card-0-slice");
  EXPECT_EQ(placed(put_pod("p", "k")), "n1: 4 GiB, compute 10, node");
}

TEST_F(ClaimControllerTest, OnlyTheLeaderWrites) {
  put_class();
  put_claim("k", 4);
  feed();
  clock.advance(60s);  // the lease is over
  controller.step();
  for (const auto& write : api.writes()) EXPECT_THAT(write.path, ::testing::Not(HasSubstr("elasticgpu")));
}

}  // namespace
}  // namespace carve::control
