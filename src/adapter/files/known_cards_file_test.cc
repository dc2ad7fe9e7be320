#include "adapter/files/known_cards_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace carve::files {
namespace {

class KnownCardsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "carve-known-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(KnownCardsFileTest, LoadsWhatWasSavedAndNamesABrokenFile) {
  const std::string path = folder_ + "/cards.json";
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
}  // namespace carve::files
