#include "app/agent/slice_table.h"

#include <gtest/gtest.h>

namespace carve::agent {
namespace {

TEST(LiveSlice, ANoteKeepsTheFieldsThatARecordLacks) {
  LiveSlice slice;
  slice.id = "s-1-2";
  slice.holder = {OwnerKind::kClaim, "c-1"};
  slice.part = "gpu";
  slice.keep = slice.in_private_folder = slice.ending = true;
  slice.pods = {"u1", "u2"};
  slice.uid = 1000;
  slice.name = "default/p/gpu";
  slice.environment = {{"A", "1,2"}};
  const LiveSlice again = slice_of(slice.id, note_of(slice));
  EXPECT_EQ(again.id, slice.id);
  EXPECT_EQ(again.holder, slice.holder);
  EXPECT_EQ(again.part, slice.part);
  EXPECT_TRUE(again.keep && again.in_private_folder && again.ending);
  EXPECT_TRUE(again.ending_noted) << "the journal says that it ends";
  EXPECT_EQ(again.pods, slice.pods);
  EXPECT_EQ(again.uid, slice.uid);
  EXPECT_EQ(again.name, slice.name);
  EXPECT_EQ(again.environment, slice.environment);
  slice.ending = false;
  EXPECT_FALSE(slice_of(slice.id, note_of(slice)).ending_noted);
}

TEST(LiveSlice, ASliceOfThisMachineIsItsOwnOwner) {
  LiveSlice slice;
  slice.id = "run-1-2";
  slice.holder = {OwnerKind::kLocal, slice.id};
  slice.uid = 7;
  slice.name = "caf\xc3\xa9\n";
  const SliceNote note = note_of(slice);
  EXPECT_FALSE(note.prepared_for);
  EXPECT_EQ(note.name, "caf???");
  const LiveSlice again = slice_of(slice.id, note);
  EXPECT_EQ(again.holder, slice.holder);
  EXPECT_EQ(again.part, kPart);
  EXPECT_EQ(again.uid, 7U);
  EXPECT_FALSE(again.keep || again.in_private_folder || again.ending);
}

}  // namespace
}  // namespace carve::agent
