#include "app/cli/cluster/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/cli/cluster/explain.h"
#include "app/cli/cluster/inspect.h"
#include "app/control/testing/objects.h"
#include "port/testing/fake_kube_api.h"

namespace carve::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ClusterQuestions : public ::testing::Test {
 protected:
  void SetUp() override {
    put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1"},"status":{"allocatable":{"elasticgpu.io/slot":"64"}}})");
    put("/apis/elasticgpu.io/v1alpha1/gpus/n1.gpu-0",
        R"({"metadata":{"name":"n1.gpu-0"},"spec":{"index":0,"uuid":"GPU-0","model":"NVIDIA T4",)"
        R"("memory":17179869184,"nodeName":"n1",)"
        R"("plugins":["slots"]},"status":{"state":"Healthy","holders":[{"owner":{"kind":"pod","uid":"u-a",)"
        R"("namespace":"ml","name":"a"},"part":"main","memory":13958643712,"cores":80,"whole":false,)"
        R"("shareClass":"burst","priorityClass":"standard","pods":["ml/a"]}]}})");
    put("/api/v1/namespaces/ml/pods/a", pod("a", "u-a", "n1", "13312", "80"));
    put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "4096", "10"));
  }
  void put(const std::string& path, const std::string& object) { kube_.put(path, object); }
  static std::string pod(const std::string& name, const std::string& uid, const std::string& node,
                         const std::string& memory, const std::string& cores, int priority = 0,
                         const std::string& nominated = "") {
    return R"({"metadata":{"name":")" + name + R"(","namespace":"ml","uid":")" + uid + R"("},"spec":{"nodeName":")" +
           node + R"(","priority":)" + std::to_string(priority) +
           R"(,"containers":[{"name":"main","resources":{"limits":{"elasticgpu.io/gpu-memory":")" + memory +
           R"(","elasticgpu.io/gpu-core":")" + cores +
           R"(","elasticgpu.io/slot":"1"}}}]},"status":{"phase":"Pending","nominatedNodeName":")" + nominated +
           R"("}})";
  }
  /// Takes cards out of use like an operator of gpushare: by their indexes in the driver's list.
  void take_out(const std::string& gpus) {
    put("/api/v1/namespaces/kube-system/configmaps/unhealthy-gpu-n1",
        R"({"metadata":{"name":"unhealthy-gpu-n1"},"data":{"gpus":")" + gpus + R"("}})");
  }
  /// A pod of 2 GiB waits with a nomination for the node with 3 GiB free on its card.
  void keep_two_of_three() {
    put("/api/v1/namespaces/ml/pods/high", pod("high", "u-high", "", "2048", "10", 1000, "n1"));
  }
  void ask(const std::string& memory, int priority) {
    put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", memory, "10", priority));
  }
  std::string inspect() {
    const auto view = ask_cluster(access(), "");
    return view ? render_cluster(*view, false) : "error: " + view.error().what;
  }
  ClusterAccess access() { return {kube_, clock_, log_, {}, {}}; }
  std::string explain(const std::string& name) {
    const auto said = ask_pod(access(), "ml", name);
    return said ? render_explanation(*said) : "error: " + said.error().what;
  }

  testing::FakeKubeApi kube_;
  SystemClock clock_;
  Log log_{[](std::string_view) {}};
};

TEST_F(ClusterQuestions, InspectShowsSlicesAndWaitingPods) {
  const auto view = ask_cluster(access(), "");
  ASSERT_TRUE(view) << view.error().what;
  EXPECT_EQ(render_cluster(*view, false),
            "NODE  CARD  MODEL      STATE    MEMORY GRANTED    COMPUTE    HELD BY\n"
            "n1    0     NVIDIA T4  healthy  13 GiB of 16 GiB  80 of 100  ml/a\n"
            "\n1 card on 1 node: 13 GiB of 16 GiB and 80 of 100 granted\n"
            "waiting: ml/b requests main: 4 GiB, compute 10, burst: "
            "1 node: no room for 4 GiB, compute 10, burst: 1 card: largest free slice 3 GiB < 4 GiB\n");
  EXPECT_THAT(render_cluster(*view, true), AllOf(HasSubstr("GPU-0"), HasSubstr("80 burst"), HasSubstr("main")));
}

/// Its image may be pulled for minutes. Control has promised the room, so no view may show it as free.
TEST_F(ClusterQuestions, InspectShowsABoundPodBeforeItsNodeReportsIt) {
  Slice slice;
  slice.owner = {OwnerKind::kPod, "u-c"};
  slice.part = "main";
  slice.card = CardId("GPU-0");
  slice.memory = Bytes::gib(1);
  slice.compute = CoreShare(10);
  auto text = pod("c", "u-c", "n1", "1024", "10");
  text.insert(text.find(R"("uid")"), fmt::format(R"("annotations":{{"{}":{}}},)", codec::kRecordAnnotation,
                                                 control::testing::quoted(control::testing::record_text({slice}))));
  put("/api/v1/namespaces/ml/pods/c", text);
  EXPECT_THAT(inspect(), HasSubstr("14 GiB of 16 GiB  90 of 100  ml/a, ml/c\n"));
}

TEST_F(ClusterQuestions, AGpuObjectThatCannotBeReadFailsNoView) {
  put("/apis/elasticgpu.io/v1alpha1/gpus/broken", R"({"metadata":{"name":"broken"},"spec":{"memory":"much"}})");
  const auto view = ask_cluster(access(), "");
  ASSERT_TRUE(view) << view.error().what;
  EXPECT_THAT(render_cluster(*view, false), HasSubstr("1 card on 1 node"));
}

TEST_F(ClusterQuestions, InspectOfOneNodeNeedsACardThere) {
  EXPECT_TRUE(ask_cluster(access(), "n1"));
  EXPECT_EQ(ask_cluster(access(), "n9").error().what, "no card is known on node \"n9\"");
}

TEST_F(ClusterQuestions, AWaitingPodIsExplainedWithNumbersAndTheRequestThatFits) {
  EXPECT_EQ(explain("b"),
            "pod ml/b waits, not bound to a node\n"
            "  requests main: 4 GiB, compute 10, burst (native)\n"
            "  fits     on none of 1 node with cards\n"
            "           1 node: no room for 4 GiB, compute 10, burst: 1 card: largest free slice 3 GiB < 4 GiB\n"
            "  now      only if the pod requested at most 3 GiB of each card\n"
            "  later    when slices end: the pod is retried immediately\n");
}

TEST_F(ClusterQuestions, APodThatCanNeverFitIsReportedAsFinal) {
  put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "20480", "10"));
  EXPECT_THAT(explain("b"), HasSubstr("  now      only if the pod requested at most 3 GiB of each card\n"
                                      "  later    never on these nodes, unless the pod's request or the nodes' cards "
                                      "change\n"));
}

TEST_F(ClusterQuestions, APodThatFitsDoesNotWaitForCards) {
  put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "1024", "10"));
  put("/api/v1/namespaces/ml/events/e",
      R"({"metadata":{"name":"e"},"involvedObject":{"uid":"u-b"},"reason":"FailedScheduling",)"
      R"("lastTimestamp":"2026-01-01T00:00:00Z","message":"0/1 nodes are available: 1 Insufficient cpu."})");
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("  fits     on 1 of 1 node: n1\n"),
                                  HasSubstr("the pod does not wait for cards"), HasSubstr("Insufficient cpu")));
}

TEST_F(ClusterQuestions, APodWaitsForACardThatAnOperatorTookOutOfUse) {
  ask("1024", 0);
  take_out("1");
  EXPECT_THAT(explain("b"), HasSubstr("the pod does not wait for cards")) << "another card";
  take_out("0");
  const std::string why = "ConfigMap kube-system/unhealthy-gpu-n1 names it";
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("  fits     on none of 1 node with cards\n"), HasSubstr(why),
                                  Not(HasSubstr("does not wait for cards")), Not(HasSubstr("  note  "))));
  EXPECT_THAT(inspect(), AllOf(HasSubstr("waiting: ml/b requests"), HasSubstr(why), Not(HasSubstr("fits on"))));
  EXPECT_THAT(inspect(), HasSubstr("  NVIDIA T4  healthy; closed: " + why + "  13 GiB of 16 GiB  "));
  take_out("0,one");
  EXPECT_THAT(explain("b"), HasSubstr("  fits     on 1 of 1 node: n1\n")) << "an invalid list marks no card";
}

TEST_F(ClusterQuestions, ACallerWithoutPermissionLearnsThatCardsMayBeOutOfUse) {
  take_out("0");
  ask("1024", 0);
  testing::FakeKubeApi::Fault fault;
  fault.path = "kube-system/configmaps";
  fault.code = Code::kPermissionDenied;
  fault.times = 2;
  kube_.fail_next(fault);
  const std::string note =
      "you may not list ConfigMaps in kube-system, so a card that ConfigMap unhealthy-gpu-<node> takes out of use "
      "counts as usable\n";
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("  fits     on 1 of 1 node: n1\n"), HasSubstr("  note     " + note)));
  EXPECT_THAT(inspect(), AllOf(HasSubstr("waiting: ml/b"), HasSubstr("\nnote: " + note)));
  EXPECT_THAT(inspect(), Not(HasSubstr("note: "))) << "with the permission";
  fault.code = Code::kUnavailable;
  fault.times = 1;
  kube_.fail_next(fault);
  EXPECT_THAT(explain("b"), HasSubstr("error: ")) << "an unavailable server is not a missing permission";
}

TEST_F(ClusterQuestions, CapacityReservedForANominatedPodIsNotFree) {
  ask("2048", 0);
  EXPECT_THAT(explain("b"), HasSubstr("  fits     on 1 of 1 node: n1\n"));
  keep_two_of_three();
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("  fits     on none of 1 node with cards\n"),
                                  HasSubstr("largest free slice 1 GiB < 2 GiB"),
                                  HasSubstr("  now      only if the pod requested at most 1 GiB of each card\n")));
  EXPECT_THAT(inspect(), HasSubstr("waiting: ml/b requests main: 2 GiB, compute 10, burst: 1 node: no room"));
  EXPECT_THAT(explain("high"), HasSubstr("  fits     on 1 of 1 node: n1\n")) << "its own reservation";
  ask("512", 0);
  EXPECT_THAT(explain("b"), HasSubstr("GPU-0  8.1 % free now")) << "1 GiB of 16 and compute 10 of 100";
}

TEST_F(ClusterQuestions, APodOfHigherPriorityIgnoresTheReservation) {
  keep_two_of_three();
  ask("2048", 1000);
  EXPECT_THAT(explain("b"), HasSubstr("  fits     on none of 1 node with cards\n")) << "the same priority";
  ask("2048", 1001);
  EXPECT_THAT(explain("b"),
              AllOf(HasSubstr("  fits     on 1 of 1 node: n1\n"), HasSubstr("GPU-0  19.4 % free now, for main")));
  EXPECT_THAT(inspect(), HasSubstr("waiting: ml/b requests main: 2 GiB, compute 10, burst: fits on n1"));
  ask("4096", 1001);
  EXPECT_THAT(explain("b"), HasSubstr("  now      only if the pod requested at most 3 GiB of each card\n"));
}

TEST_F(ClusterQuestions, CapacityIsReservedWhileThePreemptedPodsStillRun) {
  put("/apis/elasticgpu.io/v1alpha1/gpus/n1.gpu-0",
      R"({"metadata":{"name":"n1.gpu-0"},"spec":{"index":0,"uuid":"GPU-0","model":"NVIDIA T4",)"
      R"("memory":17179869184,"nodeName":"n1","plugins":["slots"]},"status":{"state":"Healthy"}})");
  put("/api/v1/namespaces/ml/pods/a",
      R"({"metadata":{"name":"a","namespace":"ml","uid":"u-a","deletionTimestamp":"2026-01-01T00:00:00Z",)"
      R"("annotations":{"carve.elasticgpu.io/record":)"
      R"("{\"v\":1,\"epoch\":7,\"owner\":{\"kind\":\"pod\",\"uid\":\"u-a\"},\"parts\":[{\"part\":\"main\",)"
      R"(\"share\":\"burst\",\"priority\":\"standard\",\"dialect\":\"native\",\"cards\":[{\"uuid\":\"GPU-0\",)"
      R"(\"bytes\":4294967296,\"compute\":10}]}]}"}},"spec":{"nodeName":"n1","containers":[]},)"
      R"("status":{"phase":"Running"}})");
  EXPECT_THAT(explain("b"), HasSubstr("  fits     on 1 of 1 node: n1\n"));
  put("/api/v1/namespaces/ml/pods/high", pod("high", "u-high", "", "14336", "10", 1000, "n1"));
  EXPECT_THAT(explain("b"), HasSubstr("largest free slice 2 GiB < 4 GiB"))
      << "14 GiB are reserved, 4 of them still in use";
}

TEST_F(ClusterQuestions, ABoundPodIsExplainedWithItsSlices) {
  put("/api/v1/namespaces/ml/pods/c",
      R"({"metadata":{"name":"c","namespace":"ml","uid":"u-c","annotations":{"carve.elasticgpu.io/record":)"
      R"("{\"v\":1,\"epoch\":7,\"owner\":{\"kind\":\"pod\",\"uid\":\"u-c\"},\"parts\":[{\"part\":\"main\",)"
      R"(\"share\":\"burst\",\"priority\":\"standard\",\"dialect\":\"native\",\"cards\":[{\"uuid\":\"GPU-0\",)"
      R"(\"bytes\":1073741824,\"compute\":10}]}]}"}},"spec":{"nodeName":"n1","containers":[{"name":"main",)"
      R"("resources":{"limits":{"elasticgpu.io/gpu-memory":"1024","elasticgpu.io/gpu-core":"10",)"
      R"("elasticgpu.io/slot":"1"}}}]},)"
      R"("status":{"phase":"Running"}})");
  EXPECT_THAT(explain("c"),
              AllOf(HasSubstr("pod ml/c is on n1\n"), HasSubstr("slice    main: GPU-0  1 GiB, compute 10, burst\n"),
                    HasSubstr("decided  in epoch 7 of control\n"),
                    HasSubstr("policy   nodes by binpack (built in), cards by binpack (built in)\n"),
                    HasSubstr("would be placed on n1"), HasSubstr(" free now, for ")));
}

TEST_F(ClusterQuestions, APodThatBypassedAdmissionDoesNotWaitForCarve) {
  put("/api/v1/namespaces/ml/pods/b",
      R"({"metadata":{"name":"b","namespace":"ml","uid":"u-b"},"spec":{"containers":[{"name":"main","resources":{)"
      R"("limits":{"nvidia.com/gpu":"1"}}}]},"status":{"phase":"Pending"}})");
  EXPECT_EQ(explain("b"),
            "pod ml/b waits, not bound to a node\n"
            "  error    it has no elasticgpu.io/slot: Carve's admission did not review it (an excluded namespace, or a "
            "pod that is older than Carve), so carve-control assigns it no cards\n");
  const auto view = ask_cluster(access(), "");
  ASSERT_TRUE(view) << view.error().what;
  EXPECT_THAT(render_cluster(*view, false), Not(HasSubstr("waiting:")));
}

TEST_F(ClusterQuestions, APodWithAClaimIsExplainedWithItsClaim) {
  put("/api/v1/namespaces/ml/pods/d",
      R"({"metadata":{"name":"d","namespace":"ml","uid":"u-d"},"spec":{"resourceClaims":[{"name":"gpu",)"
      R"("resourceClaimTemplateName":"t"}],"containers":[{"name":"main","resources":{"claims":[{"name":"gpu"}]}}]},)"
      R"("status":{"phase":"Pending","resourceClaimStatuses":[{"name":"gpu","resourceClaimName":"d-gpu-x"}]}})");
  EXPECT_THAT(explain("d"),
              AllOf(HasSubstr("  claim    d-gpu-x: the claim cannot be read"), Not(HasSubstr("requests no card"))));
  put("/apis/resource.k8s.io/v1/deviceclasses/fraction",
      R"({"metadata":{"name":"fraction"},"spec":{"selectors":[{"cel":{"expression":)"
      R"("device.driver == 'gpu.elasticgpu.io'"}}]}})");
  const std::string spec = R"({"metadata":{"name":"d-gpu-x","uid":"u-c"},"spec":{"devices":{"requests":[{"name":"g",)"
                           R"("exactly":{"deviceClassName":"fraction","capacity":{"requests":{"cores":"30",)"
                           R"("memory":"4Gi"}}}}]}})";
  put("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/d-gpu-x", spec + "}");
  EXPECT_EQ(explain("d"),
            "pod ml/d waits, not bound to a node\n"
            "  claim    d-gpu-x, request g: 1 device of class fraction, cores 30, memory 4Gi\n"
            "  state    not allocated: kube-scheduler chooses its card\n");
  const std::string allocation =
      R"(,"status":{"allocation":{"devices":{"results":[{"request":"g","driver":"gpu.elasticgpu.io","pool":"n1",)"
      R"("device":"gpu-1","shareID":"s","consumedCapacity":{"memory":"4Gi"}}]}})";
  put("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/d-gpu-x", spec + allocation + "}}");
  EXPECT_THAT(explain("d"), HasSubstr("  device   gpu-1 on node n1, memory 4Gi\n"
                                      "  state    allocated, not prepared by the node's agent yet\n"));
  const std::string devices = R"(,"devices":[{"pool":"n1","device":"gpu-1","shareID":"s","conditions":[)"
                              R"({"type":"Ready","status":"False","message":"the card is full"}]}])";
  put("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/d-gpu-x", spec + allocation + devices + "}}");
  EXPECT_THAT(explain("d"), HasSubstr("  state    refused: the card is full\n"));
}

TEST_F(ClusterQuestions, APodWithAnElasticGpuClaimIsExplainedWithItsClaim) {
  put("/api/v1/namespaces/ml/pods/e",
      R"({"metadata":{"name":"e","namespace":"ml","uid":"u-e","annotations":{"elasticgpu.io/egpuc-main":"k"}},)"
      R"("spec":{"containers":[{"name":"main","resources":{"limits":{"elasticgpu.io/slot":"1"}}}]},)"
      R"("status":{"phase":"Pending"}})");
  EXPECT_THAT(explain("e"), AllOf(HasSubstr("  claim    k: the ElasticGPUClaim cannot be read"),
                                  Not(HasSubstr("requests no card"))));
  const std::string spec =
      R"({"metadata":{"namespace":"ml","name":"k","uid":"u-k"},"spec":{"elasticGPUClassName":"shared","resources":)"
      R"({"requests":{"elasticgpu.io/gpu-memory":"4096","elasticgpu.io/gpu-core":"10"}}})";
  const auto path = "/apis/elasticgpu.io/v1alpha1/namespaces/ml/elasticgpuclaims/k";
  put(path, spec + R"(,"status":{"phase":"Pending","message":"no node has cards"}})");
  EXPECT_THAT(explain("e"), HasSubstr("  claim    k, request main: 4 GiB, compute 10, of class shared\n"
                                      "  state    Pending: no node has cards\n"));
  put(path, spec + R"(,"status":{"phase":"Bound","node":"n1","card":"GPU-1","memory":"4 GiB","cores":10,)"
                   R"("share":"fixed"}})");
  EXPECT_THAT(explain("e"), HasSubstr("  device   4 GiB, compute 10, fixed, on card GPU-1 of node n1\n"
                                      "  state    Bound\n"));
}

TEST_F(ClusterQuestions, AClaimWithoutAPodHoldsItsRoom) {
  put("/apis/elasticgpu.io/v1alpha1/elasticgpuclasses/shared",
      R"({"metadata":{"name":"shared"},"provisioner":"elasticgpu.io/vcuda"})");
  put("/apis/elasticgpu.io/v1alpha1/elasticgpuclaims/k",
      R"({"metadata":{"namespace":"ml","name":"k","uid":"u-k"},"spec":{"elasticGPUClassName":"shared",)"
      R"("elasticGPUName":"egpu-u-k","resources":{"requests":{"elasticgpu.io/gpu-memory":"2048",)"
      R"("elasticgpu.io/gpu-core":"10"}}},"status":{"phase":"Bound"}})");
  put("/apis/elasticgpu.io/v1alpha1/elasticgpus/egpu-u-k",
      R"({"metadata":{"name":"egpu-u-k","uid":"u-e"},"spec":{"capacity":{"elasticgpu.io/gpu-memory":"2048",)"
      R"("elasticgpu.io/gpu-core":"10"},"gpuShare":{"gpuName":"GPU-0"},"claimRef":{"namespace":"ml","name":"k",)"
      R"("uid":"u-k"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[)"
      R"({"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]}]}}},"status":{"phase":"Bound"}})");
  EXPECT_THAT(inspect(), HasSubstr("claim ml/k"));
  ask("2048", 1000);
  EXPECT_THAT(explain("b"), HasSubstr("largest free slice 1 GiB < 2 GiB")) << "3 GiB are free without the claim";
  // A pod that uses the claim gets its room.
  put("/api/v1/namespaces/ml/pods/c",
      R"({"metadata":{"name":"c","namespace":"ml","uid":"u-c","annotations":{"elasticgpu.io/egpuc-main":"k"}},)"
      R"("spec":{"containers":[{"name":"main","resources":{"limits":{"elasticgpu.io/slot":"1"}}}]},)"
      R"("status":{"phase":"Pending"}})");
  EXPECT_THAT(explain("c"), AllOf(HasSubstr("requests main: 2 GiB, compute 10, fixed"), HasSubstr("n1")));
  EXPECT_THAT(inspect(), AllOf(HasSubstr("ml/c"), Not(HasSubstr("claim ml/k"))));
}

TEST_F(ClusterQuestions, AClaimOfAnotherDriverIsNoRequestForACard) {
  put("/api/v1/namespaces/ml/pods/d",
      R"({"metadata":{"name":"d","namespace":"ml","uid":"u-d"},"spec":{"resourceClaims":[{"name":"nic",)"
      R"("resourceClaimName":"nic"}],"containers":[{"name":"main","resources":{"claims":[{"name":"nic"}]}}]}})");
  put("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/nic",
      R"({"metadata":{"name":"nic","uid":"u-c"},"status":{"allocation":{"devices":{"results":[)"
      R"({"driver":"nic.io"}]}}}})");
  EXPECT_THAT(explain("d"), HasSubstr("  requests no card\n"));
}

TEST_F(ClusterQuestions, InvalidRequestsAreExplainedToo) {
  put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "4096", "130"));
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("error    "), HasSubstr("gpu-core"), Not(HasSubstr("  requests "))));
  EXPECT_THAT(explain("zz"), HasSubstr("no pod zz in namespace ml"));
}

}  // namespace
}  // namespace carve::cli
