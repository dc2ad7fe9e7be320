#include "app/plugins/claimed_cards.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "app/plugins/testing/small_kube.h"

namespace carve::plugins {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string room(const char* name, const char* phase, const char* card, const char* node = "n1") {
  return fmt::format(R"({{"metadata":{{"name":"{}"}},"status":{{"phase":"{}","node":"{}","card":"{}"}}}})", name, phase,
                     node, card);
}

TEST(ClaimedCards, AreTheCardsOnWhichRoomIsKept) {
  SmallKube kube;
  ClaimedCards claimed("n1", kube);
  EXPECT_FALSE(claimed.synced());
  claimed.replace({room("a", "Bound", "GPU-0"), room("b", "Available", "GPU-1"), room("c", "Released", "GPU-1"),
                   room("d", "Pending", "GPU-2"), room("e", "Bound", "GPU-3", "n2"), room("f", "Bound", ""),
                   "not JSON"});
  EXPECT_TRUE(claimed.synced());
  EXPECT_THAT(claimed.cards(), ElementsAre(CardId("GPU-0"), CardId("GPU-1")));
  claimed.change({KubeChange::Kind::kDeleted, room("b", "Available", "GPU-1")});
  EXPECT_THAT(claimed.cards(), ElementsAre(CardId("GPU-0"), CardId("GPU-1"))) << "another one is on the card";
  claimed.change({KubeChange::Kind::kPut, room("c", "Pending", "GPU-1")});
  claimed.change({KubeChange::Kind::kPut, room("d", "Bound", "GPU-2")});
  claimed.change({KubeChange::Kind::kDeleted, "not JSON"});
  EXPECT_THAT(claimed.cards(), ElementsAre(CardId("GPU-0"), CardId("GPU-2")));
  claimed.replace({});
  EXPECT_THAT(claimed.cards(), IsEmpty());
}

}  // namespace
}  // namespace carve::plugins
