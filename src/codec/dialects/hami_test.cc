#include <gtest/gtest.h>

#include <map>
#include <string>

#include "codec/dialects/dialect.h"

namespace carve::codec {
namespace {

using Texts = std::map<std::string, std::string>;

constexpr DialectSettings kRead{.hami = true};

std::string meaning(const Texts& limits, Texts annotations = {}, const DialectSettings& settings = kRead) {
  PodAsk pod;
  pod.annotations = std::move(annotations);
  pod.containers.push_back({"c", ContainerKind::kMain, {}, {}});
  for (const auto& [name, value] : limits) pod.containers[0].limits["nvidia.com/" + name] = value;
  const auto parts = requests_of(pod, settings);
  if (!parts) return parts.error().what;
  return parts->empty() ? "nothing" : parts->front().request.dialect + ": " + to_human(parts->front().request);
}

Request request_of(Texts annotations, const Texts& more = {}) {
  PodAsk pod;
  pod.annotations = std::move(annotations);
  pod.containers.push_back({"c", ContainerKind::kMain, {}, {{"nvidia.com/gpumem", "3000"}}});
  for (const auto& [name, value] : more) pod.containers[0].limits["nvidia.com/" + name] = value;
  const auto parts = requests_of(pod, kRead);
  EXPECT_TRUE(parts) << parts.error().what;
  return parts ? parts->front().request : Request();
}

TEST(Hami, EachCombinationOfItsNamesHasOneMeaning) {
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem", "4096"}, {"gpucores", "30"}}), "hami: 4 GiB, compute 30, burst");
  EXPECT_EQ(meaning({{"gpu", "2"}, {"gpumem", "4096"}}), "hami: 2 cards × (4 GiB, besteffort)");
  EXPECT_EQ(meaning({{"gpumem", "4k"}}), "hami: 3.9 GiB, besteffort") << "one card; the API server's form of 4000";
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem-percentage", "25"}}), "hami: 25% of the memory, besteffort");
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpucores", "30"}}), "hami: 100% of the memory, compute 30, burst");
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem", "4096"}, {"gpucores", "0"}}), "hami: 4 GiB, besteffort") << "0: no cap";
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem", "4096"}, {"gpumem-percentage", "0"}}), "hami: 4 GiB, besteffort");
}

TEST(Hami, ACardThatItGivesToOnePodIsExclusive) {
  EXPECT_EQ(meaning({{"gpu", "2"}, {"gpucores", "100"}}), "hami: 2 whole cards");
  EXPECT_EQ(meaning({{"gpumem-percentage", "100"}}), "hami: 1 whole card");
  EXPECT_EQ(meaning({{"gpumem", "4194304"}}), "hami: 4 TiB, besteffort") << "the most";
  EXPECT_EQ(meaning({{"gpumem", "4096"}, {"gpucores", "100"}}), "hami: 4 GiB, compute 100, burst, exclusive");
  EXPECT_EQ(meaning({{"gpumem", "4096"}}, {{"hami.io/gpu-scheduler-policy", "mutex"}}),
            "hami: 4 GiB, besteffort, exclusive");
  EXPECT_EQ(meaning({{"gpumem", "4096"}}, {{"hami.io/gpu-scheduler-policy", "spread"}}), "hami: 4 GiB, besteffort");
}

/// nvidia.com/gpu belongs to NVIDIA's plugin unless the container also has a name that only HAMi reads.
TEST(Hami, TheMoreSpecificDialectReadsTheSharedName) {
  EXPECT_EQ(meaning({{"gpu", "1"}}), "nvidia: 1 whole card");
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem", "0"}, {"gpucores", "0"}}), "nvidia: 1 whole card") << "a chart's";
  EXPECT_EQ(owner_of("nvidia.com/gpu")->name, "nvidia");
  const auto both = dialects_with("nvidia.com/gpu");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1]->name, "hami");
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem", "4096"}}, {}, {Bytes::gib(1), false, true}), "nothing")
      << "another plugin serves nvidia.com/gpu";
  EXPECT_EQ(meaning({{"gpu", "1"}, {"gpumem", "4096"}}, {}, {}), "nvidia: 1 whole card") << "admission refuses it";
  PodAsk pod;
  pod.containers.push_back({"c", ContainerKind::kMain, {}, {{"nvidia.com/gpumem", "1"}, {"aliyun.com/gpu-mem", "1"}}});
  EXPECT_EQ(requests_of(pod, kRead).error().what,
            "container c: nvidia.com/gpumem together with aliyun.com/gpu-mem: one container must use one dialect");
  pod.containers[0].limits = {{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem", "1"}, {"aliyun.com/gpu-mem", "1"}};
  EXPECT_FALSE(requests_of(pod, kRead)) << "three dialects, of which two fit together";
}

TEST(Hami, TheSelectorsOfItsUsersChooseTheCards) {
  EXPECT_EQ(request_of({{"nvidia.com/use-gputype", "A100, Tesla V100 ,"}}).constraints.model, "A100,Tesla V100");
  EXPECT_EQ(request_of({{"nvidia.com/nouse-gputype", "T4,40GB"}}).constraints.model, "!T4,!40GB");
  EXPECT_EQ(request_of({{"nvidia.com/use-gputype", "A100"}, {"nvidia.com/nouse-gputype", "40GB"}}).constraints.model,
            "A100,!40GB");
  EXPECT_EQ(request_of({{"nvidia.com/use-gpuuuid", "GPU-1,GPU-2"}}).constraints.cards,
            (std::vector<CardId>{CardId("GPU-1"), CardId("GPU-2")}));
  EXPECT_EQ(request_of({{"nvidia.com/nouse-gpuuuid", "GPU-1 , GPU-2"}}).constraints.not_cards,
            (std::vector<CardId>{CardId("GPU-1"), CardId("GPU-2")}));
}

TEST(Hami, PriorityZeroIsOnline) {
  EXPECT_EQ(request_of({}, {{"priority", "0"}}).priority, PriorityClass::kOnline);
  EXPECT_EQ(request_of({}, {{"priority", "1"}}).priority, PriorityClass::kStandard);
  EXPECT_EQ(request_of({}).priority, PriorityClass::kStandard);
}

TEST(Hami, IllegalValuesAreRefusedWithFieldValueUnitAndLegalValues) {
  EXPECT_EQ(meaning({{"gpumem", "4096"}, {"gpumem-percentage", "25"}}),
            "container c: nvidia.com/gpumem: 4096 MiB together with nvidia.com/gpumem-percentage: 25; set only one of "
            "them");
  EXPECT_EQ(meaning({{"gpumem-percentage", "101"}}),
            "container c: nvidia.com/gpumem-percentage: \"101\" is out of range; legal: 0 to "
            "100 % of each card's memory");
  EXPECT_EQ(meaning({{"gpucores", "150"}, {"gpumem", "1"}}),
            "container c: nvidia.com/gpucores: \"150\" is out of range; legal: 0 to 100 "
            "hundredths of each card");
  EXPECT_EQ(meaning({{"priority", "2"}, {"gpumem", "1"}}),
            "container c: nvidia.com/priority: \"2\" is out of range; legal: 0 to 1 (0: high, 1: low)");
  EXPECT_EQ(meaning({{"gpu", "17"}, {"gpumem", "1"}}),
            "container c: nvidia.com/gpu: \"17\" is out of range; legal: 1 to 16 cards");
}

}  // namespace
}  // namespace carve::codec
