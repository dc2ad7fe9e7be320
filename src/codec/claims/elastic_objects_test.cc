#include "codec/claims/elastic_objects.h"

#include <gmock/gmock.h>

namespace carve::codec {
namespace {

using ::testing::HasSubstr;

std::string claim_text(const std::string& spec) {
  return R"({"metadata":{"namespace":"s","name":"k","uid":"u","resourceVersion":"7"},"spec":{)" + spec + "}}";
}

ElasticClaim claim_of(const std::string& spec) { return *parse_elastic_claim(claim_text(spec), {}); }

TEST(ElasticObjects, TheThreeSpellingsOfAClaimMeanTheSame) {
  const ElasticClaim article =
      claim_of(R"("storageClassName":"c","resources":{"requests":{"tke.cloud.tencent.com/qgpu-core":10,)"
               R"("tke.cloud.tencent.com/qgpu-memory":"4GB"}})");
  const ElasticClaim readme =
      claim_of(R"("egpuClassName":"c","resources":{"requests":{"gpushare.provisioner.elasticgpu.io/gpu-core":10,)"
               R"("gpushare.provisioner.elasticgpu.io/gpu-memory":4}})");
  const ElasticClaim code = claim_of(
      R"("elasticGPUClassName":"c","resources":{"requests":{"elasticgpu.com/gpu-core":"10",)"
      R"("elasticgpu.com/gpu-memory":4096}})");
  for (const ElasticClaim& one : {article, readme, code}) {
    EXPECT_EQ(one.error, "");
    EXPECT_EQ(one.class_name, "c");
    EXPECT_EQ(one.namespace_name, "s");
    EXPECT_EQ(one.request.memory, MemoryAsk::of(Bytes::gib(4)));
    EXPECT_EQ(one.request.compute, CoreShare(10));
  }
}

TEST(ElasticObjects, AMemoryMayHaveAUnit) {
  const auto memory = [](const std::string& name, const std::string& amount) {
    const auto request = request_of_amounts({{name, amount}}, {});
    return request ? to_human(request->memory.bytes()) : request.error().what;
  };
  EXPECT_EQ(memory("elasticgpu.io/gpu-memory", "4Gi"), "4 GiB");
  EXPECT_EQ(memory("elasticgpu.io/gpu-memory", "512MB"), "512 MiB");
  EXPECT_EQ(memory("elasticgpu.io/gpu-memory", "512"), "512 MiB");
  EXPECT_THAT(memory("aliyun.com/gpu-mem", "512MB"), HasSubstr("\"512MB\" is not a whole number of 1 GiB"));
  EXPECT_THAT(memory("elasticgpu.io/gpu-memory", "4TB"), HasSubstr("elasticgpu.io/gpu-memory: \"4TB\""));
}

TEST(ElasticObjects, AnIllegalClaimSaysWhatIsLegal) {
  EXPECT_THAT(claim_of("").error, HasSubstr("spec.resources.requests: no resource name of a dialect; legal are"));
  EXPECT_THAT(claim_of(R"("resources":{"requests":{"elasticgpu.io/gpu":"2","elasticgpu.io/gpu-memory":"4096",)"
                       R"("elasticgpu.io/gpu-tflops":"20"}})")
                  .error,
              HasSubstr("2 cards, and compute in TFLOPS; state the compute of several cards in hundredths"));
  const std::string many = claim_of(R"("resources":{"requests":{"elasticgpu.io/gpu":"17"}})").error;
  EXPECT_THAT(many, HasSubstr("1 to 16"));
  EXPECT_THAT(many, testing::Not(HasSubstr("container"))) << "a claim has none";
  EXPECT_FALSE(parse_elastic_claim("{}", {}));
}

TEST(ElasticObjects, ClassesInAllSpellings) {
  const auto made = [](const std::string& more) {
    return *parse_elastic_class(R"({"metadata":{"name":"c"},"provisioner":"elasticgpu.io/qgpu")" + more + "}");
  };
  EXPECT_FALSE(made("").retain);
  EXPECT_TRUE(made(R"(,"reclaimPolicy":"Retain","eGPUBindingMode":"Immediate")").retain);
  EXPECT_TRUE(made(R"(,"egpuBindingMode":"WaitForFirstConsumer")").waits);
  EXPECT_TRUE(made(R"(,"parameters":{"isolation":"enforced","pods":"3"})").enforced);
  EXPECT_EQ(made(R"(,"parameters":{"pods":"3"})").pods, 3U);
  EXPECT_THAT(made(R"(,"parameters":{"pods":"0"})").error,
              HasSubstr("parameters.pods: \"0\" is not legal; legal are 1 to"));
  EXPECT_THAT(made(R"(,"reclaimPolicy":"Keep")").error,
              HasSubstr("\"Keep\" is not legal; legal are Delete and Retain"));
}

TEST(ElasticObjects, AProvisionedElasticGpuIsReadBackEqual) {
  ElasticGpu gpu;
  gpu.name = "egpu-u";
  gpu.class_name = "c";
  gpu.node = "n1";
  gpu.cards = {"GPU-a"};
  gpu.request.memory = MemoryAsk::of(Bytes::gib(4));
  gpu.request.compute = CoreShare(10);
  gpu.claim = ElasticClaimRef{"s", "k", "u"};
  gpu.retain = false;
  std::string text = encode_elastic_gpu(gpu);
  text.insert(text.find("\"name\""), R"("uid":"x",)");
  const auto back = parse_elastic_gpu(text, {});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->error, "");
  EXPECT_EQ(back->node, "n1");
  EXPECT_EQ(back->cards, gpu.cards);
  EXPECT_EQ(back->request.memory, gpu.request.memory);
  EXPECT_EQ(back->request.compute, gpu.request.compute);
  EXPECT_EQ(back->claim, gpu.claim);
  EXPECT_FALSE(back->retain);
}

TEST(ElasticObjects, TheStatusOfAnElasticGpuIsRead) {
  const auto gpu = parse_elastic_gpu(
      R"({"metadata":{"name":"g","uid":"u","resourceVersion":"7","deletionTimestamp":"2026-11-29T00:00:00Z",)"
      R"("annotations":{"elasticgpu.io/class":"c"}},)"
      R"("status":{"phase":"Bound","message":"m","node":"n1","card":"GPU-a,GPU-b"}})",
      {});
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->uid, "u");
  EXPECT_EQ(gpu->version, "7");
  EXPECT_TRUE(gpu->deleting);
  EXPECT_EQ(gpu->phase, "Bound");
  EXPECT_EQ(gpu->message, "m");
  EXPECT_EQ(gpu->shown_node, "n1");
  EXPECT_EQ(gpu->shown_cards, "GPU-a,GPU-b");
}

TEST(ElasticObjects, AnElasticGpuMayHaveSeveralCards) {
  EXPECT_EQ(claim_of(R"("resources":{"requests":{"elasticgpu.io/gpu-core":"200"}})").request, whole_cards(2));
  ElasticGpu gpu;
  gpu.name = "g";
  gpu.node = "n1";
  gpu.cards = {"GPU-a", "GPU-b"};
  for (const bool whole : {true, false}) {
    gpu.request = whole_cards(2);
    if (!whole) {
      gpu.request = Request();
      gpu.request.count = 2;
      gpu.request.memory = MemoryAsk::of(Bytes::gib(4));
      gpu.request.compute = CoreShare(10);
    }
    std::string text = encode_elastic_gpu(gpu);
    text.insert(text.find("\"name\""), R"("uid":"x",)");
    const auto back = parse_elastic_gpu(text, {});
    ASSERT_TRUE(back);
    EXPECT_EQ(back->error, "");
    EXPECT_EQ(back->cards, gpu.cards);
    EXPECT_EQ(back->request, gpu.request);
  }
  const CardPlace place{"n1", {CardId("GPU-a"), CardId("GPU-b")}, Bytes::gib(16)};
  EXPECT_THAT(elastic_claim_status(ClaimPhase::kBound, "", &gpu, &place),
              HasSubstr(R"("card":"GPU-a,GPU-b","memoryBytes":4294967296,"memory":"2 × 4 GiB","cores":10)"));
  const auto room = parse_elastic_room(R"({"metadata":{"name":"g"},"status":{"node":"n1","card":"GPU-a,GPU-b"}})");
  ASSERT_TRUE(room);
  EXPECT_EQ(room->cards, place.cards);
  gpu.cards.push_back("GPU-c");
  std::string text = encode_elastic_gpu(gpu);
  text.insert(text.find("\"name\""), R"("uid":"x",)");
  EXPECT_THAT(parse_elastic_gpu(text, {})->error, HasSubstr("names 3 card(s), and spec.capacity is of 2"));
}

TEST(ElasticObjects, AStaticElasticGpuNamesItsCard) {
  const auto read = [](const std::string& spec) {
    return *parse_elastic_gpu(R"({"metadata":{"name":"g","uid":"u"},"spec":{)" + spec + "}}", {});
  };
  const std::string capacity = R"("capacity":{"elasticgpu.com/gpu-core":10,"elasticgpu.com/gpu-memory":4096})";
  const std::string node = R"(,"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{)"
                           R"("key":"kubernetes.io/hostname","operator":"In","values":["node-1"]}]}]}})";
  const ElasticGpu whole = read(capacity + R"(,"gpuShare":{"gpuName":"gpu-0"})" + node);
  EXPECT_EQ(whole.error, "");
  EXPECT_EQ(whole.node, "node-1");
  EXPECT_EQ(whole.cards, std::vector<std::string>{"gpu-0"});
  EXPECT_TRUE(whole.retain) << "an administrator's object";
  EXPECT_THAT(read(capacity).error, HasSubstr("names no node"));
  using Swap = std::pair<std::string, std::string>;
  for (const auto& [right, wrong] : {Swap("\"kubernetes.io/hostname\"", "\"zone\""), Swap("\"In\"", "\"NotIn\"")}) {
    std::string other = node;
    other.replace(other.find(right), right.size(), wrong);
    EXPECT_THAT(read(capacity + R"(,"gpuShare":{"gpuName":"gpu-0"})" + other).error, HasSubstr("names no node"));
  }
  const std::string rate = R"("capacity":{"elasticgpu.io/gpu-tflops":10,"elasticgpu.io/gpu-memory":4096})";
  EXPECT_EQ(read(rate + R"(,"gpuShare":{"gpuName":"gpu-0"})" + node).error,
            "spec.capacity: an ElasticGPU is a part of one card; state its compute in hundredths "
            "(elasticgpu.io/gpu-core)");
  EXPECT_THAT(read(capacity + node).error, HasSubstr("names no card; legal is one of spec.gpuShare.gpuName"));
}

TEST(ElasticObjects, PatchesHaveThePrecondition) {
  ElasticClaim claim = claim_of("");
  EXPECT_EQ(gpu_name_patch(claim, "g"), R"({"metadata":{"resourceVersion":"7"},"spec":{"elasticGPUName":"g"}})");
  ElasticGpu gpu;
  gpu.version = "8";
  EXPECT_EQ(claim_ref_patch(gpu, {"s", "k", "u"}),
            R"({"metadata":{"resourceVersion":"8"},"spec":{"claimRef":{"apiVersion":"elasticgpu.io/v1alpha1",)"
            R"("kind":"ElasticGPUClaim","namespace":"s","name":"k","uid":"u"}}})");
  EXPECT_EQ(protection_patch(claim, R"({"metadata":{"finalizers":["other"]}})", true),
            R"({"metadata":{"resourceVersion":"7","finalizers":["other","elasticgpu.io/claim-protection"]}})");
  EXPECT_EQ(protection_patch(claim, R"({"metadata":{"finalizers":["elasticgpu.io/claim-protection"]}})", false),
            R"({"metadata":{"resourceVersion":"7","finalizers":[]}})");
  const auto is_protected = [](const std::string& finalizer) {
    std::string text = claim_text("");
    text.insert(text.find("\"name\""), "\"finalizers\":[\"" + finalizer + "\"],");
    return parse_elastic_claim(text, {})->is_protected;
  };
  EXPECT_TRUE(is_protected("elasticgpu.io/claim-protection"));
  EXPECT_FALSE(is_protected("kubernetes.io/pvc-protection"));
}

TEST(ElasticObjects, AStatusSaysWhereTheCardIs) {
  const CardPlace place{"n1", {CardId("GPU-a"), CardId("GPU-b")}, Bytes::gib(16), {}, "T4"};
  EXPECT_EQ(elastic_gpu_status(GpuPhase::kBound, "m", &place),
            R"({"status":{"phase":"Bound","message":"m","node":"n1","card":"GPU-a,GPU-b"}})");
  EXPECT_EQ(elastic_gpu_status(GpuPhase::kFailed, "m", nullptr), R"({"status":{"phase":"Failed","message":"m"}})");
  ElasticGpu gpu;
  gpu.node = "n1";
  gpu.cards = {"GPU-a", "GPU-b"};
  gpu.request.count = 2;
  gpu.request.memory = MemoryAsk::of(Bytes::gib(4));
  gpu.request.compute = CoreShare(10);
  gpu.request.share = ShareClass::kFixed;
  EXPECT_EQ(claim_place(elastic_claim_status(ClaimPhase::kBound, "", &gpu, &place)),
            "2 × 4 GiB, compute 10, fixed, on cards GPU-a,GPU-b of node n1");
  gpu.request = whole_cards(1);
  gpu.cards.pop_back();
  EXPECT_EQ(claim_place(elastic_claim_status(ClaimPhase::kBound, "", &gpu, nullptr)),
            "0 bytes, compute 100, whole, on card GPU-a of node n1")
      << "the size of the card is unknown";
  EXPECT_EQ(claim_place(elastic_claim_status(ClaimPhase::kPending, "", nullptr, nullptr)), "");
  EXPECT_EQ(claim_place("{"), "");
}

TEST(ElasticObjects, ClaimsOfAPodByBothAnnotations) {
  PodAsk pod;
  pod.annotations = {{"elasticgpu.io/egpuc-test", "a"},
                     {"egpuc.elasticgpu.io/a-container-with-a-name-of-57-characters", "b"},
                     {"elasticgpu.io/share-class", "fixed"}};
  const auto all = claims_of(pod);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].container, "a-container-with-a-name-of-57-characters");
  EXPECT_EQ(all[0].claim, "b");
  EXPECT_EQ(all[1].container, "test");
}

TEST(ElasticObjects, EachContainerUsesOneClaimOrRequestsCards) {
  PodAsk pod;
  for (const char* name : {"a", "b", "c", "d"}) pod.containers.push_back({name, ContainerKind::kMain, {}, {}});
  pod.annotations = {{"egpuc.elasticgpu.io/a", "one"}, {"elasticgpu.io/egpuc-a", "two"},
                     {"egpuc.elasticgpu.io/b", "one"}, {"egpuc.elasticgpu.io/c", ""},
                     {"egpuc.elasticgpu.io/d", "one"}, {"egpuc.elasticgpu.io/e", "one"}};
  PartRequest requesting;
  requesting.part = "d";
  const auto uses = claim_uses(pod, {requesting});
  ASSERT_EQ(uses.legal.size(), 2U);
  EXPECT_EQ(std::pair(uses.legal[0].container, uses.legal[0].claim), std::pair(std::string("a"), std::string("one")));
  EXPECT_EQ(uses.legal[1].container, "b");
  std::string errors;
  for (const auto& error : uses.errors) errors += error.what + "\n";
  EXPECT_THAT(errors, HasSubstr("annotation elasticgpu.io/egpuc-a: container a uses two claims; legal is one"));
  EXPECT_THAT(errors, HasSubstr("annotation egpuc.elasticgpu.io/c: it names no ElasticGPUClaim"));
  EXPECT_THAT(errors, HasSubstr("annotation egpuc.elasticgpu.io/d: container d also requests cards by resource names"));
  EXPECT_THAT(errors, HasSubstr("annotation egpuc.elasticgpu.io/e: there is no container e; this pod has a, b, c, d"));
  EXPECT_EQ(uses.errors.size(), 4U);
}

}  // namespace
}  // namespace carve::codec
