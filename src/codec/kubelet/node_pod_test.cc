#include "codec/kubelet/node_pod.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/kubelet/runtime_config.h"

namespace carve::codec {
namespace {

TEST(NodePod, ReadsClaimsByObjectNameAndTheirContainers) {
  const auto pod = parse_node_pod(R"({"metadata":{"namespace":"ml","name":"p","uid":"u"},
    "spec":{"nodeName":"n1","resourceClaims":[{"name":"own","resourceClaimName":"shared"},
                                              {"name":"made","resourceClaimTemplateName":"t"},
                                              {"name":"later","resourceClaimTemplateName":"t"}],
      "initContainers":[{"name":"i","resources":{"claims":[{"name":"made","request":"b"}]}}],
      "containers":[{"name":"c","resources":{"claims":[{"name":"own"},{"name":"later"}]}},{"name":"d"}]},
    "status":{"phase":"Pending","resourceClaimStatuses":[{"name":"made","resourceClaimName":"p-made-x1"}],
      "extendedResourceClaimStatus":{"resourceClaimName":"p-ext","requestMappings":[
        {"containerName":"d","requestName":"container-1-request-0","resourceName":"nvidia.com/gpu"}]}}})");
  ASSERT_TRUE(pod) << pod.error().what;
  EXPECT_TRUE(pod->pending);
  EXPECT_EQ(pod->claims, (std::vector<PodClaimUse>{{"p-made-x1", "i", "b"},
                                                   {"shared", "c", ""},
                                                   {"p-ext", "d", "container-1-request-0"}}));
}

TEST(NodePod, ReadsContainersWhoseDeviceTheRuntimeDidNotFind) {
  const auto pod =
      parse_node_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{"containerStatuses":[
    {"name":"a","state":{"waiting":{"reason":"CreateContainerError","message":"failed to generate spec: CDI device
 injection failed: unresolvable CDI devices carve.elasticgpu.io/slice=x-1"}}},
    {"name":"b","state":{"waiting":{"message":"unresolvable CDI devices nvidia.com/gpu=0"}}},
    {"name":"c","state":{"running":{}}}]}})");
  // A raw line break within a string is not JSON: the kubelet never sends one.
  EXPECT_FALSE(pod);
  const auto fine = parse_node_pod(
      R"({"metadata":{"name":"p","uid":"u"},"status":{"containerStatuses":[{"name":"a","state":{"waiting":)"
      R"({"message":"unresolvable CDI devices carve.elasticgpu.io/slice=x-1"}}},{"name":"b","state":{"waiting":)"
      R"({"message":"unresolvable CDI devices nvidia.com/gpu=0"}}},{"name":"c","state":{"running":{}}}]}})");
  ASSERT_TRUE(fine);
  EXPECT_EQ(fine->unresolved, std::vector<std::string>{"a"});
}

TEST(NodePod, ReadsItsNamesAndAnnotations) {
  const auto pod = parse_node_pod(
      R"({"metadata":{"namespace":"ml","name":"p","uid":"u","annotations":{"kubernetes.io/config.mirror":"m",)"
      R"("carve.elasticgpu.io/record":"r"}},"spec":{"nodeName":"n1"}})");
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->namespace_name + "/" + pod->name + "/" + pod->uid, "ml/p/u");
  EXPECT_EQ(pod->mirror, "m");
  EXPECT_EQ(pod->record, "r");
  EXPECT_EQ(pod->node, "n1");
}

TEST(NodePod, NamesTheContainersThatUseElasticGpuClaims) {
  const auto pod = parse_node_pod(
      R"({"metadata":{"name":"p","uid":"u","annotations":{"elasticgpu.io/egpuc-a":"k","egpuc.elasticgpu.io/b":"l",)"
      R"("elasticgpu.io/share-class":"burst"}}})");
  ASSERT_TRUE(pod);
  EXPECT_THAT(pod->by_elastic_claim, ::testing::UnorderedElementsAre("a", "b"));
}

TEST(NodePod, AStaticPodThatRequestsCardsWithoutSlotsIsNoticed) {
  const auto asks = [](const std::string& mirror, const std::string& limits) {
    return parse_node_pod(R"({"metadata":{"name":"p","uid":"u","annotations":{)" + mirror +
                          R"(}},"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"limits":{)" + limits +
                          R"(}}}]}})")
        ->asks_without_slots;
  };
  const std::string mirror = R"("kubernetes.io/config.mirror":"m")";
  EXPECT_EQ(asks(mirror, R"("cpu":"1","elasticgpu.io/gpu-memory":"1024")"), "elasticgpu.io/gpu-memory");
  EXPECT_EQ(asks(mirror, R"("aliyun.com/gpu-mem":"2")"), "aliyun.com/gpu-mem");
  EXPECT_EQ(asks(mirror, R"("elasticgpu.io/gpu-memory":"1024","elasticgpu.io/slot":"1")"), "");
  EXPECT_EQ(asks(mirror, R"("elasticgpu.io/gpu-memory":"0","cpu":"1")"), "");
  EXPECT_EQ(asks("", R"("elasticgpu.io/gpu-memory":"1024")"), "") << "not a static pod: admission has decided";
}

TEST(NodePod, ARejectionIsNoticedIfItWasForASlot) {
  const auto rejected = [](const std::string& phase, const std::string& reason, const std::string& message) {
    return parse_node_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{"phase":")" + phase + R"(","reason":")" +
                          reason + R"(","message":")" + message + R"("}})")
        ->slot_rejected;
  };
  //   source  Kubernetes 1.36, pkg/kubelet/cm/devicemanager/manager.go
  const std::string said =
      "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
      "elasticgpu.io/slot, which is unexpected";
  EXPECT_EQ(rejected("Failed", "UnexpectedAdmissionError", said), said);
  EXPECT_EQ(rejected("Failed", "UnexpectedAdmissionError", "can't allocate unregistered device nic.io/port"), "");
  EXPECT_EQ(rejected("Failed", "OutOfcpu", said), "");
  EXPECT_EQ(rejected("Pending", "UnexpectedAdmissionError", said), "");
}

TEST(NodePod, AClaimWithoutAnObjectIsLeftOut) {
  const auto pod = parse_node_pod(R"({"metadata":{"name":"p","uid":"u"},"spec":{"resourceClaims":[{"name":"made"}],
    "containers":[{"name":"c","resources":{"claims":[{"name":"made"},{"name":"nowhere"}]}}]},
    "status":{"extendedResourceClaimStatus":{"requestMappings":[{"containerName":"c","requestName":"r"}]}}})");
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->claims.empty());
}

TEST(NodePod, EveryPhaseHasItsMeaning) {
  const struct {
    std::string phase;
    bool ended, pending;
  } all[] = {{"Pending", false, true},  {"", false, true},          {"Running", false, false},
             {"Unknown", false, false}, {"Succeeded", true, false}, {"Failed", true, false}};
  for (const auto& [phase, ended, pending] : all) {
    const auto pod = parse_node_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{"phase":")" + phase + R"("}})");
    ASSERT_TRUE(pod);
    EXPECT_EQ(pod->ended, ended) << phase;
    EXPECT_EQ(pod->pending, pending) << phase;
  }
  EXPECT_FALSE(parse_node_pod(R"({"metadata":{"name":"p"}})"));
  EXPECT_FALSE(parse_node_pod(R"({"metadata":{"uid":"u"}})"));
}

TEST(RuntimeConfig, ReadsContainerdsSettings) {
  const auto with =
      parse_runtime_config(R"({"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]})");
  EXPECT_EQ(with.cdi, true);
  EXPECT_EQ(with.cdi_dirs, (std::vector<std::string>{"/etc/cdi", "/var/run/cdi"}));
  EXPECT_EQ(parse_runtime_config(R"({"enableCDI":false,"cdiSpecDirs":["/etc/cdi"]})").cdi, false);
  EXPECT_EQ(parse_runtime_config(R"({"enableCDI":null,"cdiSpecDirs":["/etc/cdi"]})").cdi, true);
  EXPECT_EQ(parse_runtime_config(R"({"snapshotter":"x"})").cdi, std::nullopt);
  EXPECT_EQ(parse_runtime_config("[crio]\n").cdi, std::nullopt);
}

TEST(RuntimeConfig, IsReadUpToSixtyFourLevelsDeep) {
  const auto reads = [](std::size_t depth) {
    return parse_runtime_config(R"({"enableCDI":true,"x":)" + std::string(depth - 1, '[') +
                                std::string(depth - 1, ']') + "}")
        .cdi.has_value();
  };
  EXPECT_TRUE(reads(64));
  EXPECT_FALSE(reads(65));
  EXPECT_EQ(parse_runtime_config(R"({"enableCDI":null,"cdiSpecDirs":[]})").cdi, std::nullopt);
  EXPECT_EQ(parse_runtime_config(R"({"enableCDI":null,"cdiSpecDirs":["",7,"/a"]})").cdi_dirs,
            std::vector<std::string>{"/a"});
}

}  // namespace
}  // namespace carve::codec
