// What users of gpushare get, through the engine: whether a pod fits, on which card, and what every container holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/dialects/projection.h"
#include "core/policy/place_pod.h"

namespace carve::codec {
namespace {

using testing::HasSubstr;

class Gpushare : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      Card card;
      card.id = CardId("GPU-" + std::to_string(i));
      card.memory = Bytes::mib(16160);  // 15 GiB and a remainder that the dialect cannot express
      ASSERT_TRUE(ledger.put_card(card));
      cards.push_back({card.id, i, card.memory});
    }
  }
  static PodAsk pod(const std::string& uid, const std::vector<std::string>& amounts) {
    PodAsk ask;
    ask.uid = uid;
    for (std::size_t i = 0; i < amounts.size(); ++i) {
      ask.containers.push_back(
          {"c" + std::to_string(i), ContainerKind::kMain, {}, {{"aliyun.com/gpu-mem", amounts[i]}}});
    }
    return ask;
  }
  /// Places the pod as control binds it; returns the error text if it is refused.
  std::string place(const PodAsk& ask, const PolicyRow& policy = kPolicies[0]) {
    const auto parts = requests_of(ask, {});
    if (!parts) return parts.error().what;
    const auto slices = place_pod(ledger, {}, {OwnerKind::kPod, ask.uid}, *parts, policy);
    if (!slices) return slices.error().what;
    EXPECT_TRUE(ledger.add(*slices));
    record = *record_of(1, *slices);
    return projections(ask, record, cards, {}, 1)["ALIYUN_COM_GPU_MEM_IDX"];
  }
  Ledger ledger;
  std::vector<CountedCard> cards;
  Record record;
};

TEST_F(Gpushare, APublishedStatefulSetPacksOnOneCard) {
  for (const char* replica : {"binpack-0", "binpack-1", "binpack-2"}) EXPECT_EQ(place(pod(replica, {"3"})), "0");
  EXPECT_EQ(place(pod("seven", {"7"})), "1") << "6 GiB are left on the first card";
  EXPECT_EQ(place(pod("six", {"6"})), "0");
}

TEST_F(Gpushare, TheContainersOfAPodShareItsCardWithSeparateLimits) {
  EXPECT_EQ(place(pod("a", {"13"})), "0");
  EXPECT_EQ(place(pod("b", {"14"})), "1");
  EXPECT_EQ(place(pod("c", {"1", "2"})),
            "parts c0, c1 on the same cards: no room for 3 GiB, besteffort: 2 cards: "
            "largest free slice 2.7 GiB < 3 GiB")
      << "they would fit on separate cards, which is not allowed";
  EXPECT_EQ(ledger.remove_owner({OwnerKind::kPod, "b"}), 1U);
  EXPECT_EQ(place(pod("c", {"1", "2"})), "1");
  EXPECT_EQ(environment(record, "c0", cards, {})["ALIYUN_COM_GPU_MEM_CONTAINER"], "1");
  EXPECT_EQ(environment(record, "c1", cards, {})["ALIYUN_COM_GPU_MEM_CONTAINER"], "2");
  EXPECT_EQ(ledger.find(CardId("GPU-1"))->slices.at(0).memory, Bytes::gib(1));
  EXPECT_EQ(ledger.find(CardId("GPU-1"))->slices.at(1).memory, Bytes::gib(2));
}

TEST_F(Gpushare, MemoryNeverGoesBelowZero) {  // its own extender loses track of this
  EXPECT_EQ(place(pod("a", {"15"})), "0");
  EXPECT_EQ(place(pod("b", {"15"})), "1");
  EXPECT_THAT(place(pod("c", {"1"})), HasSubstr("no room for 1 GiB"));
  EXPECT_TRUE(ledger.audit());
}

TEST_F(Gpushare, APodWithTheSameNameIsAnotherPod) {  // deleted and immediately re-created
  EXPECT_EQ(place(pod("first-uid", {"15"})), "0");
  EXPECT_EQ(ledger.remove_owner({OwnerKind::kPod, "first-uid"}), 1U);
  EXPECT_EQ(place(pod("second-uid", {"15"})), "0");
}

TEST_F(Gpushare, AnAmountInTheWrongUnitNamesTheSettingOfTheUnit) {
  EXPECT_THAT(place(pod("mib", {"16276"})), HasSubstr("1 to 4096 GiB; the unit of this cluster is GiB: "
                                                      "dialects.gpushare-unit in ConfigMap carve-cluster"));
  EXPECT_THAT(place(pod("half", {"5500m"})), HasSubstr("dialects.gpushare-unit"));
}

}  // namespace
}  // namespace carve::codec
