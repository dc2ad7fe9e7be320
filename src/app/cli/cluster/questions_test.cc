#include "app/cli/cluster/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/cli/cluster/explain.h"
#include "app/cli/cluster/inspect.h"
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
        R"("doors":["slots"]},"status":{"state":"Healthy","holders":[{"owner":{"kind":"pod","uid":"u-a",)"
        R"("namespace":"ml","name":"a"},"part":"main","memory":13958643712,"cores":80,"whole":false,)"
        R"("shareClass":"burst","priorityClass":"standard","pods":["ml/a"]}]}})");
    put("/api/v1/namespaces/ml/pods/a", pod("a", "u-a", "n1", "13312", "80"));
    put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "4096", "10"));
  }
  void put(const std::string& path, const std::string& object) { kube_.put(path, object); }
  static std::string pod(const std::string& name, const std::string& uid, const std::string& node,
                         const std::string& memory, const std::string& cores) {
    return R"({"metadata":{"name":")" + name + R"(","namespace":"ml","uid":")" + uid + R"("},"spec":{"nodeName":")" +
           node + R"(","containers":[{"name":"main","resources":{"limits":{"elasticgpu.io/gpu-memory":")" + memory +
           R"(","elasticgpu.io/gpu-core":")" + cores +
           R"(","elasticgpu.io/slot":"1"}}}]},"status":{"phase":"Pending"}})";
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

TEST_F(ClusterQuestions, InspectSaysWhoHoldsWhatAndWhoWaits) {
  const auto view = ask_cluster(access(), "");
  ASSERT_TRUE(view) << view.error().what;
  EXPECT_EQ(render_cluster(*view, false),
            "NODE  CARD  MODEL      STATE    MEMORY GRANTED    COMPUTE    HELD BY\n"
            "n1    0     NVIDIA T4  healthy  13 GiB of 16 GiB  80 of 100  ml/a\n"
            "\n1 card on 1 node: 13 GiB of 16 GiB and 80 of 100 granted\n"
            "waits: ml/b asks for main: 4 GiB, compute 10, burst: "
            "1 node: no room for 4 GiB, compute 10, burst: 1 card: largest free slice 3 GiB < 4 GiB\n");
  EXPECT_THAT(render_cluster(*view, true), AllOf(HasSubstr("GPU-0"), HasSubstr("80 burst"), HasSubstr("main")));
}

TEST_F(ClusterQuestions, OneNodeOrNone) {
  EXPECT_TRUE(ask_cluster(access(), "n1"));
  EXPECT_EQ(ask_cluster(access(), "n9").error().what, "no card is known on a node \"n9\"");
}

TEST_F(ClusterQuestions, AWaitingPodIsToldTheNumbersAndWhatWouldHelp) {
  EXPECT_EQ(explain("b"),
            "pod ml/b waits, on no node\n"
            "  asks     main: 4 GiB, compute 10, burst (native)\n"
            "  fits     on none of 1 node with cards\n"
            "           1 node: no room for 4 GiB, compute 10, burst: 1 card: largest free slice 3 GiB < 4 GiB\n"
            "  now with at most 3 GiB of each card\n"
            "  later    when slices end; it is tried again at once\n");
}

TEST_F(ClusterQuestions, APodThatCanNeverFitIsToldSo) {
  put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "20480", "10"));
  EXPECT_THAT(explain("b"), HasSubstr("later    never on these nodes"));
}

TEST_F(ClusterQuestions, WhereTheCardsAreFreeSomethingElseIsWaitedFor) {
  put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "1024", "10"));
  put("/api/v1/namespaces/ml/events/e",
      R"({"metadata":{"name":"e"},"involvedObject":{"uid":"u-b"},"reason":"FailedScheduling",)"
      R"("lastTimestamp":"2026-01-01T00:00:00Z","message":"0/1 nodes are available: 1 Insufficient cpu."})");
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("  fits     on 1 of 1 node: n1\n"),
                                  HasSubstr("it is not the cards that it waits for"), HasSubstr("Insufficient cpu")));
}

TEST_F(ClusterQuestions, APlacedPodIsToldWhatItHolds) {
  put("/api/v1/namespaces/ml/pods/c",
      R"({"metadata":{"name":"c","namespace":"ml","uid":"u-c","annotations":{"carve.elasticgpu.io/record":)"
      R"("{\"v\":1,\"epoch\":7,\"owner\":{\"kind\":\"pod\",\"uid\":\"u-c\"},\"parts\":[{\"part\":\"main\",)"
      R"(\"share\":\"burst\",\"priority\":\"standard\",\"dialect\":\"native\",\"cards\":[{\"uuid\":\"GPU-0\",)"
      R"(\"bytes\":1073741824,\"compute\":10}]}]}"}},"spec":{"nodeName":"n1","containers":[{"name":"main",)"
      R"("resources":{"limits":{"elasticgpu.io/gpu-memory":"1024","elasticgpu.io/gpu-core":"10",)"
      R"("elasticgpu.io/slot":"1"}}}]},)"
      R"("status":{"phase":"Running"}})");
  EXPECT_THAT(explain("c"), AllOf(HasSubstr("pod ml/c is on n1\n"),
                                  HasSubstr("holds    main: GPU-0  1 GiB, compute 10, burst\n"),
                                  HasSubstr("decided  in epoch 7 of control\n"),
                                  HasSubstr("policy   nodes by binpack (built in), cards by binpack (built in)\n"),
                                  HasSubstr("would go to n1"), HasSubstr(" left now, for ")));
}

TEST_F(ClusterQuestions, APodThatAdmissionDidNotSeeWaitsForNothingOfOurs) {
  put("/api/v1/namespaces/ml/pods/b",
      R"({"metadata":{"name":"b","namespace":"ml","uid":"u-b"},"spec":{"containers":[{"name":"main","resources":{)"
      R"("limits":{"nvidia.com/gpu":"1"}}}]},"status":{"phase":"Pending"}})");
  EXPECT_EQ(explain("b"),
            "pod ml/b waits, on no node\n"
            "  wrong    it has no elasticgpu.io/slot: Carve's admission did not see it (a namespace that is left "
            "alone, or a pod from before Carve), so control gives it no cards\n");
  const auto view = ask_cluster(access(), "");
  ASSERT_TRUE(view) << view.error().what;
  EXPECT_THAT(render_cluster(*view, false), Not(HasSubstr("waits:")));
}

TEST_F(ClusterQuestions, NonsenseIsExplainedToo) {
  put("/api/v1/namespaces/ml/pods/b", pod("b", "u-b", "", "4096", "130"));
  EXPECT_THAT(explain("b"), AllOf(HasSubstr("wrong    "), HasSubstr("gpu-core"), Not(HasSubstr("asks"))));
  EXPECT_THAT(explain("zz"), HasSubstr("no pod zz in namespace ml"));
}

}  // namespace
}  // namespace carve::cli
