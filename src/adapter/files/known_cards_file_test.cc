#include "adapter/files/known_cards_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace carve {
namespace {

TEST(KnownCardsFile, LoadsWhatWasSavedAndNamesABrokenFile) {
  char name[] = "/tmp/carve-known-XXXXXX";
  const std::string path = std::string(::mkdtemp(name)) + "/cards.json";
  KnownCardsFile file(path);
  EXPECT_EQ(file.load().error().code, Code::kNotFound);
  KnownCards known;
  known.boot_id = "b";
  KnownCard card;
  card.card.id = CardId("GPU-1");
  card.card.memory = Bytes::gib(16);
  card.held = HeldXid{48};
  known.cards = {card};
  ASSERT_TRUE(file.save(known));
  EXPECT_EQ(*KnownCardsFile(path).load(), known);
  std::ofstream(path) << "{\"version\":1,";
  EXPECT_EQ(file.load().error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace carve
