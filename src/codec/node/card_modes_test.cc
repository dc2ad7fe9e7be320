#include "codec/node/card_modes.h"

#include <gmock/gmock.h>

namespace carve::codec {
namespace {

using ::testing::HasSubstr;

const CardId kFirst("GPU-a");
const CardId kSecond("GPU-b");

TEST(CardModes, OfTheNodeAndOfSingleCards) {
  EXPECT_EQ(card_modes_of({}, {}), CardModes{});
  const auto modes = card_modes_of({{std::string(kCardMode), "shared"}}, {{std::string(kCardModes), "1=exclusive"}});
  EXPECT_EQ(modes.of(kFirst, 0), CardMode::kShared);
  EXPECT_EQ(modes.of(kSecond, 1), CardMode::kExclusive);
  const auto by_uuid = card_modes_of({}, {{std::string(kCardModes), "GPU-b=shared,0=exclusive"}});
  EXPECT_EQ(by_uuid.of(kFirst, 0), CardMode::kExclusive);
  EXPECT_EQ(by_uuid.of(kSecond, 1), CardMode::kShared);
  EXPECT_EQ(by_uuid.of(CardId("GPU-c"), 2), CardMode::kAny);
  EXPECT_EQ(by_uuid.refused, "");
}

TEST(CardModes, LabelsOfOtherSystemsApplyWhereTheOwnOneIsAbsent) {
  const auto all = [](const NodeTexts& labels) { return card_modes_of(labels, {}).all; };
  const std::string ack(kAckSchedule);
  const std::string rancher(kRancherType);
  EXPECT_EQ(all({{ack, "default"}}), CardMode::kExclusive);
  for (const char* word : {"cgpu", "core_mem", "share"}) EXPECT_EQ(all({{ack, word}}), CardMode::kShared) << word;
  for (const char* word : {"mps", "mig", "topology"}) EXPECT_EQ(all({{ack, word}}), CardMode::kAny) << word;
  EXPECT_EQ(all({{rancher, "default"}}), CardMode::kExclusive);
  EXPECT_EQ(all({{rancher, "share"}}), CardMode::kShared);
  EXPECT_TRUE(is_shared_by_rancher({{rancher, "share"}}));
  EXPECT_FALSE(is_shared_by_rancher({{rancher, "default"}}));
  EXPECT_FALSE(is_shared_by_rancher({}));
  EXPECT_EQ(all({{rancher, "share"}, {std::string(kCardMode), "any"}}), CardMode::kAny);
}

TEST(CardModes, AnIllegalValueCountsAsAbsentAndIsNamed) {
  const auto modes = card_modes_of({{std::string(kCardMode), "whole"}, {std::string(kRancherType), "share"}},
                                   {{std::string(kCardModes), "0=shared,1,2=x"}, {std::string(kCardModeDrain), "yes"}});
  EXPECT_EQ(modes.all, CardMode::kShared) << "the other label applies";
  EXPECT_EQ(modes.of(kFirst, 0), CardMode::kShared);
  EXPECT_FALSE(modes.drains);
  EXPECT_THAT(modes.refused,
              HasSubstr("label elasticgpu.io/card-mode: \"whole\" is not a mode; legal are any, shared or "
                        "exclusive"));
  EXPECT_THAT(modes.refused, HasSubstr("annotation elasticgpu.io/card-modes, card 1: \"\" is not a mode"));
  EXPECT_THAT(modes.refused, HasSubstr("card 2: \"x\" is not a mode"));
  EXPECT_THAT(modes.refused,
              HasSubstr("annotation elasticgpu.io/card-mode-drain: \"yes\" is not legal; legal are true or "
                        "false"));
  EXPECT_TRUE(card_modes_of({}, {{std::string(kCardModeDrain), "true"}}).drains);
}

}  // namespace
}  // namespace carve::codec
