// The dialects of other systems, one by one: what each legal spelling means, every refusal, and what a placed pod
// shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "codec/dialects/pod_checks.h"
#include "codec/dialects/projection.h"

namespace carve::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using Words = std::map<std::string, std::string>;

PodAsk pod_with(const Words& limits, const Words& annotations = {}, const Words& labels = {}) {
  PodAsk pod;
  pod.labels = labels;
  pod.annotations = annotations;
  pod.containers.push_back({"c", ContainerKind::kMain, {}, limits});
  return pod;
}

std::string meaning(const PodAsk& pod, const DialectSettings& settings = {}) {
  const auto parts = requests_of(pod, settings);
  if (!parts) return parts.error().what;
  return parts->empty() ? "nothing" : parts->front().request.dialect + ": " + to_human(parts->front().request);
}

// --- cGPU

Words cgpu(const std::string& memory, const std::string& percentage) {
  return {{"aliyun.com/gpu-mem", memory}, {"aliyun.com/gpu-core.percentage", percentage}};
}

TEST(Cgpu, ThePercentageIsSetAsideAndTheNodeSaysHowItIsEnforced) {
  EXPECT_EQ(meaning(pod_with(cgpu("2", "30"))), "cgpu: 2 GiB, compute 30, node");
  EXPECT_EQ(meaning(pod_with(cgpu("2", "30"), {{"elasticgpu.io/share-class", "fixed"}})),
            "cgpu: 2 GiB, compute 30, fixed")
      << "the pod overrules the node";
}

TEST(Cgpu, IllegalValuesAreRefused) {
  EXPECT_EQ(meaning(pod_with(cgpu("2", "7"))),
            "container c: aliyun.com/gpu-core.percentage: 7 is not legal; legal are hundredths of a card (5 to 100 in "
            "steps of 5)");
  EXPECT_THAT(meaning(pod_with(cgpu("2", "105"))), HasSubstr("aliyun.com/gpu-core.percentage"));
  EXPECT_THAT(meaning(pod_with(cgpu("10G", "30"))), HasSubstr("aliyun.com/gpu-mem: \"10G\""));
  EXPECT_EQ(meaning(pod_with({{"aliyun.com/gpu-core.percentage", "30"}})),
            "container c: aliyun.com/gpu-core.percentage without aliyun.com/gpu-mem: how much memory is missing; set "
            "aliyun.com/gpu-mem too");
  EXPECT_THAT(meaning(pod_with(cgpu("8", "30"), {}, {{"aliyun.com/gpu-count", "2"}})),
              HasSubstr("together with label aliyun.com/gpu-count: 2"));
}

TEST(Cgpu, ItsContainersShareTheCardOfGpusharesContainers) {
  PodAsk pod = pod_with(cgpu("2", "30"));
  pod.containers.push_back({"d", ContainerKind::kMain, {}, {{"aliyun.com/gpu-mem", "1"}}});
  const auto parts = requests_of(pod, {});
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0].together, (*parts)[1].together);
  EXPECT_EQ((*parts)[1].request.dialect, "gpushare");
}

// --- qGPU

constexpr const char* kClass = "tke.cloud.tencent.com/app-class";

Words qgpu(const Words& amounts) {
  Words all;
  for (const auto& [name, value] : amounts) all["tke.cloud.tencent.com/qgpu-" + name] = value;
  return all;
}

TEST(Qgpu, EachClassOfPodHasOneMeaning) {
  const Words ordinary = qgpu({{"core", "20"}, {"memory", "4"}});
  EXPECT_EQ(meaning(pod_with(ordinary)), "qgpu: 4 GiB, compute 20, node");
  EXPECT_EQ(meaning(pod_with(ordinary, {{"elasticgpu.io/share-class", "burst"}})), "qgpu: 4 GiB, compute 20, burst");
  EXPECT_EQ(meaning(pod_with(qgpu({{"core", "200"}, {"memory", "30"}}))), "qgpu: 2 whole cards");
  EXPECT_EQ(meaning(pod_with(qgpu({{"core", "100"}}))), "qgpu: 1 whole card");
  EXPECT_EQ(meaning(pod_with(qgpu({{"core", "100"}, {"memory", "4"}}))), "qgpu: 4 GiB, compute 100, burst, exclusive");
  EXPECT_EQ(meaning(pod_with(qgpu({{"memory", "4"}}))), "qgpu: 4 GiB, besteffort");
  const auto online = requests_of(pod_with(qgpu({{"memory", "4"}}), {{kClass, "online"}}), {});
  ASSERT_TRUE(online);
  EXPECT_EQ(online->front().request.priority, PriorityClass::kOnline);
  EXPECT_EQ(online->front().request.share, ShareClass::kBestEffort);
  const auto offline = requests_of(pod_with(qgpu({{"core-greedy", "20"}, {"memory", "4"}}), {{kClass, "offline"}}), {});
  ASSERT_TRUE(offline);
  EXPECT_EQ(offline->front().request.priority, PriorityClass::kOffline);
  EXPECT_EQ(offline->front().request.compute, CoreShare(20));
  EXPECT_EQ(offline->front().request.share, ShareClass::kBestEffort);
}

TEST(Qgpu, IllegalValuesAreRefused) {
  const auto of = [](const Words& amounts, const Words& annotations = {}) {
    return meaning(pod_with(qgpu(amounts), annotations));
  };
  EXPECT_THAT(of({{"core", "7"}, {"memory", "4"}}), HasSubstr("qgpu-core: 7 is not legal"));
  EXPECT_THAT(
      of({{"core", "150"}, {"memory", "4"}}),
      HasSubstr("qgpu-core: 150 is not legal; legal are hundredths of a card (5 to 100 in steps of 5, or k*100"));
  EXPECT_THAT(of({{"core-greedy", "200"}, {"memory", "4"}}, {{kClass, "offline"}}), HasSubstr("qgpu-core-greedy"));
  EXPECT_THAT(of({{"core-greedy", "20"}, {"memory", "4"}}),
              HasSubstr("qgpu-core-greedy without annotation tke.cloud.tencent.com/app-class: offline"));
  EXPECT_THAT(of({{"core", "20"}, {"memory", "4"}}, {{kClass, "online"}}),
              HasSubstr("qgpu-core together with annotation tke.cloud.tencent.com/app-class: online"));
  EXPECT_THAT(of({{"core", "20"}}), HasSubstr("qgpu-core without tke.cloud.tencent.com/qgpu-memory: how much memory"));
  EXPECT_THAT(of({{"memory", "4"}}, {{kClass, "batch"}}),
              HasSubstr("\"batch\" is not a class; legal: online or offline"));
  EXPECT_THAT(of({{"memory", "4097"}}), HasSubstr("1 to 4096 GiB"));
}

// --- vCUDA

Words vcuda(const std::string& core, const std::string& memory) {
  Words all;
  if (!core.empty()) all["tencent.com/vcuda-core"] = core;
  if (!memory.empty()) all["tencent.com/vcuda-memory"] = memory;
  return all;
}

TEST(Vcuda, CoresAndBlocksAreOneRequest) {
  EXPECT_EQ(meaning(pod_with(vcuda("30", "16"))), "vcuda: 4 GiB, compute 30, fixed");
  EXPECT_EQ(meaning(pod_with(vcuda("50", "30"), {{"tencent.com/vcuda-core-limit", "60"}})),
            "vcuda: 7.5 GiB, compute 50 to 60, burst");
  EXPECT_EQ(meaning(pod_with(vcuda("50", "30"), {{"tencent.com/vcuda-core-limit", "100"}})),
            "vcuda: 7.5 GiB, compute 50, burst");
  EXPECT_EQ(meaning(pod_with(vcuda("50", "30"), {{"tencent.com/vcuda-core-limit", "60"},
                                                 {"elasticgpu.io/share-class", "fixed"}})),
            "vcuda: 7.5 GiB, compute 50, fixed")
      << "the class replaces what the dialect says about compute";
  EXPECT_EQ(meaning(pod_with(vcuda("50", "30"), {{"tencent.com/vcuda-core-limit", "60"},
                                                 {"elasticgpu.io/core-limit", "70"}})),
            "vcuda: 7.5 GiB, compute 50 to 70, burst");
  EXPECT_EQ(meaning(pod_with(vcuda("50", "30"), {{"tencent.com/vcuda-core-limit", "50"}})),
            "vcuda: 7.5 GiB, compute 50, fixed");
  EXPECT_EQ(meaning(pod_with(vcuda("200", "60"))), "vcuda: 2 whole cards");
  EXPECT_EQ(meaning(pod_with(vcuda("100", ""))), "vcuda: 1 whole card");
  EXPECT_EQ(meaning(pod_with(vcuda("100", "16"))), "vcuda: 4 GiB, compute 100, fixed, exclusive")
      << "the memory limit holds";
}

TEST(Vcuda, IllegalValuesAreRefused) {
  EXPECT_THAT(meaning(pod_with(vcuda("150", "16"))), HasSubstr("vcuda-core: 150 is not legal"));
  EXPECT_THAT(meaning(pod_with(vcuda("30", ""))), HasSubstr("vcuda-core: 30 without tencent.com/vcuda-memory"));
  EXPECT_THAT(meaning(pod_with(vcuda("", "16"))), HasSubstr("vcuda-memory without tencent.com/vcuda-core"));
  EXPECT_THAT(meaning(pod_with(vcuda("30", "16385"))), HasSubstr("1 to 16384 blocks of 256 MiB"));
  EXPECT_THAT(meaning(pod_with(vcuda("30", "16"), {{"tencent.com/vcuda-core-limit", "101"}})),
              HasSubstr("annotation tencent.com/vcuda-core-limit"));
}

// --- Rancher, Deepomatic, Volcano, Elastic GPU

TEST(Rancher, MemoryIsInGibibytes) {
  EXPECT_EQ(meaning(pod_with({{"rancher.io/gpu-mem", "3"}})), "rancher: 3 GiB, besteffort");
  EXPECT_THAT(meaning(pod_with({{"rancher.io/gpu-mem", "3500m"}})), HasSubstr("is not a whole number"));
}

TEST(Rancher, NvidiasNameIsAPartOfACardOnSharedNodes) {
  PodAsk pod = pod_with({{"nvidia.com/gpu", "1"}});
  const DialectSettings five{.rancher_containers = 5};
  EXPECT_EQ(meaning(pod, five), "nvidia: 1 whole card") << "Limit to";
  pod.node_selector = {{"gpu.cattle.io/type", "default"}};
  EXPECT_EQ(meaning(pod, five), "nvidia: 1 whole card");
  pod.node_selector = {{"gpu.cattle.io/type", "share"}};
  EXPECT_EQ(meaning(pod, five), "nvidia: 20% of the memory, compute 20, burst") << "Shared";
  EXPECT_EQ(meaning(pod), "nvidia: 1 whole card") << "the setting is off";
  pod.containers[0].limits["nvidia.com/gpu"] = "17";
  EXPECT_THAT(meaning(pod, five), HasSubstr("1 to 16 parts, each of another card"));
}

TEST(Deepomatic, EachPartIsTheNthOfAnotherCard) {
  const PodAsk one = pod_with({{"deepomatic.com/shared-gpu", "1"}});
  EXPECT_EQ(meaning(one), "nothing") << "another plugin may serve it";
  EXPECT_EQ(meaning(one, {.deepomatic_containers = 4}), "deepomatic: 25% of the memory, compute 25, burst");
  EXPECT_EQ(meaning(pod_with({{"deepomatic.com/shared-gpu", "2"}}), {.deepomatic_containers = 3}),
            "deepomatic: 2 cards × (33% of the memory, compute 33, burst)");
  EXPECT_EQ(meaning(one, {.deepomatic_containers = 1}), "deepomatic: 1 whole card");
  EXPECT_THAT(meaning(pod_with({{"deepomatic.com/shared-gpu", "17"}}), {.deepomatic_containers = 4}),
              HasSubstr("1 to 16 parts, each of another card"));
}

TEST(Volcano, MemoryCountsInTheFactorOfTheCluster) {
  EXPECT_EQ(meaning(pod_with({{"volcano.sh/gpu-memory", "1024"}})), "volcano: 1 GiB, besteffort");
  const auto by_ten = requests_of(pod_with({{"volcano.sh/gpu-memory", "103"}}), {.volcano_unit = Bytes::mib(10)});
  ASSERT_TRUE(by_ten);
  EXPECT_EQ(by_ten->front().request.memory, MemoryAsk::of(Bytes::mib(1030)));
  EXPECT_EQ(meaning(pod_with({{"volcano.sh/gpu-number", "2"}})), "volcano: 2 whole cards");
  EXPECT_EQ(meaning(pod_with({{"volcano.sh/gpu-number", "2"}, {"volcano.sh/gpu-memory", "1024"}})),
            "volcano: 2 cards × (1 GiB, besteffort)");
  EXPECT_THAT(meaning(pod_with({{"volcano.sh/gpu-memory", "419431"}}), {.volcano_unit = Bytes::mib(10)}),
              HasSubstr("1 to 419430 10 MiB"));
}

TEST(Elastic, BothDomainsOfItsCodeAndItsReadmeAreRead) {
  EXPECT_EQ(meaning(pod_with({{"elasticgpu.com/gpu-core", "10"}, {"elasticgpu.com/gpu-memory", "4096"}})),
            "elastic: 4 GiB, compute 10, burst");
  EXPECT_EQ(meaning(pod_with({{"gpushare.provisioner.elasticgpu.io/gpu-core", "10"},
                              {"gpushare.provisioner.elasticgpu.io/gpu-memory", "4"}})),
            "elastic: 4 GiB, compute 10, burst");
  EXPECT_EQ(meaning(pod_with({{"elasticgpu.com/gpu-core", "200"}})), "elastic: 2 whole cards");
  EXPECT_THAT(meaning(pod_with({{"elasticgpu.com/gpu-core", "150"}})),
              HasSubstr("elasticgpu.com/gpu-core: \"150\" is neither"));
  EXPECT_THAT(
      meaning(pod_with({{"elasticgpu.com/gpu-core", "10"}, {"gpushare.provisioner.elasticgpu.io/gpu-memory", "4"}})),
      HasSubstr("ambiguous; use one of the two"));
}

// --- All of them

DialectSettings all_served() { return {.hami = true, .deepomatic_containers = 4}; }

TEST(EveryDialect, NamesTheFieldAndTheValueOfEachIllegalAmount) {
  for (const Dialect& dialect : dialects()) {
    for (const ResourceName& one : dialect.names) {
      if (!one.asked || !one.owned) continue;
      const std::string name(one.name);
      EXPECT_FALSE(one.amounts.empty()) << name;
      for (const char* amount : {"9999999999", "1500m", "-1", "x"}) {
        const std::string said = meaning(pod_with({{name, amount}}), all_served());
        EXPECT_THAT(said, HasSubstr("container c: ")) << amount;
        EXPECT_THAT(said, HasSubstr(name + ": \"" + amount + "\"")) << said;
      }
      EXPECT_EQ(meaning(pod_with({{name, "0"}}), all_served()), "nothing") << name << ": charts write zero for none";
    }
    EXPECT_FALSE(dialect.enforced.empty()) << dialect.name;
    EXPECT_FALSE(dialect.original.empty()) << dialect.name;
    EXPECT_TRUE(dialect.served == nullptr || !dialect.setting.empty()) << dialect.name;
  }
}

TEST(EveryDialect, ANameOfOursThatDoesNotExistIsRefusedOnce) {
  ContainerAsk container;
  container.name = "c";
  container.limits = {{"elasticgpu.io/gpu-memry", "1"}, {"elasticgpu.io/slot", "1"}};
  container.requests = container.limits;
  container.requests["elasticgpu.io/gpu-cores"] = "1";
  container.requests["elasticgpu.io/gpu-memory"] = "1";
  const std::vector<Error> errors = unknown_names(container);
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_THAT(errors[0].what, HasSubstr("container c: elasticgpu.io/gpu-memry: no such resource"));
  EXPECT_THAT(errors[1].what, HasSubstr("container c: elasticgpu.io/gpu-cores: no such resource"));
}

TEST(EveryDialect, IsRefusedBesideAnotherInOneContainer) {
  const auto names = [](const Dialect& dialect) { return std::string(asked_names(dialect).front()); };
  for (const Dialect& one : dialects()) {
    for (const Dialect& other : dialects()) {
      if (one.name == other.name) continue;
      const std::string said = meaning(pod_with({{names(one), "5"}, {names(other), "5"}}), all_served());
      const bool refines = dialects_with(names(one)).size() + dialects_with(names(other)).size() > 2;
      if (refines) continue;
      EXPECT_THAT(said, HasSubstr("one container must use one dialect")) << one.name << " " << other.name;
    }
  }
}

const std::vector<CountedCard> kTwoCards = {{CardId("GPU-a"), 0, Bytes::mib(16160)},
                                            {CardId("GPU-b"), 1, Bytes::mib(143771)}};

Record record_of(std::string dialect, std::vector<RecordCard> cards, std::string part = "c") {
  RecordPart one;
  one.part = std::move(part);
  one.dialect = std::move(dialect);
  one.cards = std::move(cards);
  return {7, {OwnerKind::kPod, "u"}, {one}};
}

std::map<std::string, std::string> shown_by(const Record& record, const DialectSettings& settings = {}) {
  PodAsk pod;
  for (const RecordPart& part : record.parts) pod.containers.push_back({part.part, ContainerKind::kMain, {}, {}});
  auto texts = projections(pod, record, kTwoCards, settings, 5, "node-1");
  for (const auto& [key, value] : texts) EXPECT_TRUE(is_shown(key)) << key;
  return texts;
}

TEST(EveryDialect, ShowsWhatItsReadersExpectOnAPlacedPod) {
  EXPECT_THAT(shown_by(record_of("vcuda", {{CardId("GPU-a"), Bytes::gib(4), CoreShare(30)},
                                           {CardId("GPU-b"), Bytes::gib(4), CoreShare(30)}})),
              ElementsAre(Pair("tencent.com/gpu-assigned", "true"), Pair("tencent.com/predicate-gpu-idx-0", "0,1"),
                          Pair("tencent.com/predicate-node", "node-1"), Pair("tencent.com/predicate-time", "5")));
  EXPECT_THAT(shown_by(record_of("volcano", {{CardId("GPU-b"), Bytes::gib(1), CoreShare()}})),
              ElementsAre(Pair("volcano.sh/gpu-assigned", "true"), Pair("volcano.sh/gpu-index", "1"),
                          Pair("volcano.sh/predicate-time", "5")));
  EXPECT_THAT(shown_by(record_of("elastic", {{CardId("GPU-b"), Bytes::gib(1), CoreShare()}})),
              ElementsAre(Pair("elasticgpu.io/assumed", "true"), Pair("elasticgpu.io/container-c", "1")));
  EXPECT_THAT(shown_by(record_of("elastic", {{CardId("GPU-b"), Bytes::gib(1), CoreShare()}}, std::string(54, 'n'))),
              IsEmpty())
      << "no annotation may have such a long name";
  EXPECT_THAT(shown_by(record_of("vcuda", {{CardId("GPU-gone"), Bytes::gib(4), CoreShare(30)}})), IsEmpty());
  EXPECT_EQ(shown_by(record_of("cgpu", {{CardId("GPU-gone"), Bytes::gib(4), CoreShare(30)}}))
                .count("scheduler.framework.gpushare.allocation"),
            0U);
  Record several = record_of("vcuda", {{CardId("GPU-b"), Bytes::gib(4), CoreShare(30)}}, "first");
  several.parts.push_back(record_of("vcuda", {{CardId("GPU-a"), Bytes::gib(4), CoreShare(30)}}, "second").parts[0]);
  EXPECT_EQ(shown_by(several).at("tencent.com/predicate-gpu-idx-0"), "1");
  EXPECT_EQ(shown_by(several).at("tencent.com/predicate-gpu-idx-1"), "0");
  several.parts[0].dialect = "volcano";
  several.parts[0].phase = Phase::kInit;
  several.parts[1].dialect = "native";
  EXPECT_THAT(shown_by(several), IsEmpty()) << "an init container, and one of another dialect";
  several.parts.push_back(record_of("volcano", {{CardId("GPU-b"), Bytes::gib(1), CoreShare()}}, "third").parts[0]);
  EXPECT_EQ(shown_by(several).at("volcano.sh/gpu-index"), "1");
  const auto cgpu = shown_by(record_of("cgpu", {{CardId("GPU-b"), Bytes::gib(2), CoreShare(30)}}));
  EXPECT_EQ(cgpu.at("ALIYUN_COM_GPU_MEM_IDX"), "1");
  EXPECT_EQ(cgpu.at("ALIYUN_COM_GPU_MEM_POD"), "2");
  EXPECT_EQ(cgpu.at("gpushare.alibabacloud.com/core-percentage"), R"({"0":{"1":30}})");
  EXPECT_EQ(cgpu.at("scheduler.framework.gpushare.allocation"), R"({"0":{"1":2}})");
  EXPECT_EQ(cgpu.at("scheduler.framework.gpushare.assume-time"), "5");
}

TEST(EveryDialect, TellsItsProgramsTheirShare) {
  const auto inside = [](const Record& record, const DialectSettings& settings = {}) {
    return environment(record, "c", kTwoCards, settings);
  };
  const auto cgpu = inside(record_of("cgpu", {{CardId("GPU-a"), Bytes::gib(2), CoreShare(30)}}));
  EXPECT_EQ(cgpu.at("ALIYUN_COM_GPU_MEM_CONTAINER"), "2");
  EXPECT_EQ(cgpu.at("ALIYUN_COM_GPU_MEM_UNIT"), "GiB");
  EXPECT_EQ(cgpu.at("ALIYUN_COM_GPU_SCHD_WEIGHT"), "6");
  EXPECT_THAT(inside(record_of("volcano", {{CardId("GPU-a"), Bytes::mib(1030), CoreShare()}}),
                     {.volcano_unit = Bytes::mib(10)}),
              ElementsAre(Pair("VOLCANO_GPU_ALLOCATED", "103"), Pair("VOLCANO_GPU_MEMORY_TOTAL", "1616")));
  EXPECT_THAT(
      inside(record_of("deepomatic", {{CardId("GPU-a"), Bytes::gib(4), CoreShare(25)}}), {.deepomatic_containers = 4}),
      ElementsAre(Pair("DP_NUMBER_CONTAINERS_PER_GPU", "4"), Pair("DP_SHARED_GPU_CORES", "25"),
                  Pair("DP_SHARED_GPU_MEMORY_BYTES", "4294967296")));
}

}  // namespace
}  // namespace carve::codec
