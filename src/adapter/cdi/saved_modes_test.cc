#include "adapter/cdi/saved_modes.h"

#include <gtest/gtest.h>

namespace carve::cdi {
namespace {

const SavedModes kSaved{"b-1", {{0, 195, 0, {0666, 0, 0}}, {3, 195, 3, {0640, 7, 44}}}};

TEST(SavedModes, AreReadAsWritten) {
  const auto text = encode_saved_modes(kSaved);
  EXPECT_EQ(text, "card-files 1 b-1\nnvidia0 195:0 0666 0:0\nnvidia3 195:3 0640 7:44\nend 2\n");
  const auto back = parse_saved_modes(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, kSaved);
}

TEST(SavedModes, ATruncatedTextIsRefused) {
  const auto text = encode_saved_modes(kSaved);
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto cut = parse_saved_modes(text.substr(0, size));
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code, Code::kDataLoss);
  }
}

TEST(SavedModes, RefuseALineThatDescribesNoFile) {
  for (const char* line : {"nvidia-1 195:0 0666 0:0", "nvidia0 195:0 7777777 0:0", "../x 195:0 0666 0:0",
                           "nvidia0 195:0 0666 0:0 more", "nvidia0/../x 195:0 0666 0:0", ""}) {
    EXPECT_FALSE(parse_saved_modes(std::string("card-files 1 b\n") + line + "\nend 1\n")) << line;
  }
}

TEST(OwnStep, RecordsBeforeItTakesAndNeverRecordsCarvesOwnRights) {
  const FileRights ours{0600, 0, 0};
  const FoundFile open{true, 195, 0, {0666, 0, 0}};
  const FoundFile closed{true, 195, 0, ours};
  const SavedMode& saved = kSaved.files.front();
  EXPECT_EQ(own_step(open, 0, ours, nullptr, 195), OwnStep::kSaveAndTake);
  EXPECT_EQ(own_step(open, 0, ours, &saved, 195), OwnStep::kTake) << "killed before the change, or opened later";
  EXPECT_EQ(own_step(closed, 0, ours, &saved, 195), OwnStep::kNothing);
  EXPECT_EQ(own_step(closed, 0, ours, nullptr, 195), OwnStep::kSaveAndTake) << "an administrator had set it";
  EXPECT_EQ(own_step(closed, 0, {0660, 0, 44}, &saved, 195), OwnStep::kTake) << "another group now";
}

TEST(OwnStep, LeavesFilesThatAreNotThisCards) {
  const FileRights ours{0600, 0, 0};
  EXPECT_EQ(own_step({false, 0, 0, {0777, 0, 0}}, 0, ours, nullptr, std::nullopt), OwnStep::kLeave) << "a link";
  EXPECT_EQ(own_step({true, 195, 1, {0666, 0, 0}}, 0, ours, nullptr, 195), OwnStep::kLeave) << "another card";
  EXPECT_EQ(own_step({true, 1, 3, {0666, 0, 0}}, 0, ours, nullptr, 195), OwnStep::kLeave) << "/dev/null's numbers";
  EXPECT_EQ(own_step({true, 1, 3, {0666, 0, 0}}, 0, ours, nullptr, std::nullopt), OwnStep::kSaveAndTake);
  EXPECT_EQ(own_step({true, 195, 0, {0666, 0, 0}}, 0, ours, &kSaved.files.back(), 195), OwnStep::kSaveAndTake)
      << "the record is of another device";
}

}  // namespace
}  // namespace carve::cdi
