#include "codec/dialects/projection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace carve::codec {
namespace {

using testing::IsEmpty;

constexpr std::uint64_t kNow = 1'700'000'000'123'456'789ULL;
const std::vector<CountedCard> kCards = {{CardId("GPU-a"), 0, Bytes::mib(16160)},
                                         {CardId("GPU-b"), 1, Bytes::mib(143771)}};

RecordPart part(std::string name, std::vector<RecordCard> cards, std::string dialect = "gpushare") {
  RecordPart one;
  one.part = std::move(name);
  one.share = ShareClass::kBestEffort;
  one.dialect = std::move(dialect);
  one.cards = std::move(cards);
  return one;
}

PodAsk pod_of(const Record& record) {
  PodAsk pod;
  for (const auto& one : record.parts) {
    pod.containers.push_back(
        {one.part,
         one.phase == Phase::kInit ? ContainerKind::kInit : ContainerKind::kMain,
         {},
         {}});
  }
  return pod;
}

std::string lines(const Texts& texts) {
  std::string out;
  for (const auto& [key, value] : texts) out += key + "=" + value + "\n";
  return out;
}

TEST(Projection, GpushareShowsTheAnnotationsOfItsTools) {
  const Record record{
      7, {OwnerKind::kPod, "u"}, {part("c", {{CardId("GPU-a"), Bytes::gib(3), CoreShare()}})}};
  EXPECT_EQ(lines(projections(pod_of(record), record, kCards, {}, kNow)),
            "ALIYUN_COM_GPU_MEM_ASSIGNED=true\n"
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME=1700000000123456789\n"
            "ALIYUN_COM_GPU_MEM_DEV=15\n"
            "ALIYUN_COM_GPU_MEM_IDX=0\n"
            "ALIYUN_COM_GPU_MEM_POD=3\n"
            "scheduler.framework.gpushare.allocation={\"0\":{\"0\":3}}\n");
  EXPECT_EQ(lines(environment(record, "c", kCards, {})),
            "ALIYUN_COM_GPU_MEM_CONTAINER=3\n"
            "ALIYUN_COM_GPU_MEM_DEV=15\n"
            "ALIYUN_COM_GPU_MEM_IDX=0\n"
            "ALIYUN_COM_GPU_MEM_POD=3\n"
            "ALIYUN_COM_GPU_VISIBLE_DEVICES=GPU-a\n");
}

TEST(Projection, APartOfAnotherDialectIsNotInGpusharesSums) {
  const Record record{7,
                      {OwnerKind::kPod, "u"},
                      {part("c", {{CardId("GPU-a"), Bytes::gib(3), CoreShare()}}),
                       part("d", {{CardId("GPU-b"), Bytes::gib(5), CoreShare()}}, "native")}};
  const auto shown = projections(pod_of(record), record, kCards, {}, kNow);
  EXPECT_EQ(shown.at("ALIYUN_COM_GPU_MEM_POD"), "3");
  EXPECT_EQ(shown.at("ALIYUN_COM_GPU_MEM_IDX"), "0");
  EXPECT_EQ(shown.at("scheduler.framework.gpushare.allocation"), R"({"0":{"0":3}})");
}

TEST(Projection, EveryCardHasItsOwnSizeInTheInstallationsUnit) {  // not the first card's size for all
  const Record record{
      7, {OwnerKind::kPod, "u"}, {part("c", {{CardId("GPU-b"), Bytes::mib(2048), CoreShare()}})}};
  const auto gib = environment(record, "c", kCards, {});
  EXPECT_EQ(gib.at("ALIYUN_COM_GPU_MEM_DEV"), "140");
  EXPECT_EQ(gib.at("ALIYUN_COM_GPU_MEM_IDX"), "1");
  const auto mib = environment(record, "c", kCards, {Bytes::mib(1), true});
  EXPECT_EQ(mib.at("ALIYUN_COM_GPU_MEM_DEV"), "143771");
  EXPECT_EQ(mib.at("ALIYUN_COM_GPU_MEM_CONTAINER"), "2048");
}

TEST(Projection, EachContainerGetsItsOwnAmountAndThePodsSum) {
  Record record{7,
                {OwnerKind::kPod, "u"},
                {part("i", {{CardId("GPU-a"), Bytes::gib(2), CoreShare()}}),
                 part("c", {{CardId("GPU-a"), Bytes::gib(1), CoreShare()}}),
                 part("d", {{CardId("GPU-a"), Bytes::gib(2), CoreShare()}})}};
  record.parts[0].phase = Phase::kInit;
  const auto shown = projections(pod_of(record), record, kCards, {}, kNow);
  EXPECT_EQ(shown.at("ALIYUN_COM_GPU_MEM_POD"), "3")
      << "the init container has ended before the others begin";
  EXPECT_EQ(shown.at("scheduler.framework.gpushare.allocation"), R"({"0":{"0":1},"1":{"0":2}})");
  EXPECT_EQ(environment(record, "c", kCards, {}).at("ALIYUN_COM_GPU_MEM_CONTAINER"), "1");
  EXPECT_EQ(environment(record, "d", kCards, {}).at("ALIYUN_COM_GPU_MEM_CONTAINER"), "2");
  EXPECT_EQ(environment(record, "d", kCards, {}).at("ALIYUN_COM_GPU_MEM_POD"), "3");
  record.parts[0].cards[0].memory = Bytes::gib(4);
  EXPECT_EQ(environment(record, "d", kCards, {}).at("ALIYUN_COM_GPU_MEM_POD"), "4") << "the larger of both";
}

TEST(Projection, SeveralCardsHaveNoSingleIndex) {
  const Record record{7,
                      {OwnerKind::kPod, "u"},
                      {part("c", {{CardId("GPU-a"), Bytes::gib(4), CoreShare()},
                                  {CardId("GPU-b"), Bytes::gib(4), CoreShare()}})}};
  const auto shown = projections(pod_of(record), record, kCards, {}, kNow);
  EXPECT_EQ(shown.count("ALIYUN_COM_GPU_MEM_IDX"), 0U);
  EXPECT_EQ(shown.at("ALIYUN_COM_GPU_MEM_POD"), "8");
  EXPECT_EQ(shown.at("scheduler.framework.gpushare.allocation"), R"({"0":{"0":4,"1":4}})");
  EXPECT_EQ(environment(record, "c", kCards, {}).at("ALIYUN_COM_GPU_VISIBLE_DEVICES"),
            "GPU-a,GPU-b");
}

TEST(Projection, OtherDialectsShowNothing) {
  const Record record{7,
                      {OwnerKind::kPod, "u"},
                      {part("c", {{CardId("GPU-a"), Bytes::gib(4), CoreShare(10)}}, "native"),
                       part("d", {{CardId("GPU-b"), Bytes::gib(4), CoreShare(10)}}, "nvidia")}};
  EXPECT_THAT(projections(pod_of(record), record, kCards, {}, kNow), IsEmpty());
  EXPECT_THAT(environment(record, "c", kCards, {}), IsEmpty());
  EXPECT_THAT(environment(record, "nobody", kCards, {}), IsEmpty());
}

TEST(Projection, AllShownAnnotationsAreProtected) {
  const Record record{
      7, {OwnerKind::kPod, "u"}, {part("c", {{CardId("GPU-a"), Bytes::gib(3), CoreShare()}})}};
  for (const auto& [key, value] : projections(pod_of(record), record, kCards, {}, kNow)) {
    EXPECT_TRUE(is_shown(key)) << key;
  }
}

}  // namespace
}  // namespace carve::codec
