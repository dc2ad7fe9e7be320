#include "core/journal/slice_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/journal/journal.h"

namespace carve {
namespace {

using testing::HasSubstr;

SliceNote of_a_pod() {
  SliceNote note;
  note.keep = true;
  note.prepared_for = {{OwnerKind::kPod, "u1"}, "main", {"u1"}, {{"KEY", "value"}}, false};
  note.name = "default/p/main";
  return note;
}

/// The first fault of `change` applied to a legal note; empty: legal.
template <typename Change>
std::string fault(const Change& change) {
  SliceNote note = of_a_pod();
  change(note);
  const auto errors = validate(note);
  return errors.empty() ? "" : errors.front().what;
}

TEST(SliceNote, EveryFieldIsValidated) {
  using Part = PreparedFor;
  const auto part_fault = [](const auto& change) {
    return fault([&](SliceNote& note) { change(*note.prepared_for); });
  };
  EXPECT_EQ(fault([](SliceNote&) {}), "");
  EXPECT_EQ(fault([](SliceNote& note) { note = SliceNote(); }), "");
  EXPECT_EQ(part_fault([](Part& part) { part.owner.kind = OwnerKind::kLocal; }),
            "owner: kind local is not legal; pod and claim are");
  EXPECT_EQ(part_fault([](Part& part) { part.owner.uid = "a b"; }),
            "owner: uid: 1 to 253 letters, digits and . _ : / - are legal");
  EXPECT_EQ(part_fault([](Part& part) { part.part = ""; }), "part: 1 to 253 letters, digits and . _ : / - are legal");
  EXPECT_EQ(part_fault([](Part& part) { part.pods = {"a", "b,c"}; }),
            "pods[1]: 1 to 253 letters, digits and . _ : / - are legal");
  for (const auto& key : {std::string(), std::string("a=b"), std::string("a\0b", 3)}) {
    EXPECT_THAT(part_fault([&](Part& part) { part.environment = {{key, "v"}}; }), HasSubstr("environment: keys of"));
  }
  EXPECT_THAT(part_fault([](Part& part) { part.environment = {{"K", std::string(1, '\0')}}; }),
              HasSubstr("values without NUL"));
  EXPECT_EQ(part_fault([](Part& part) { part.environment = {{"K", " ;%=,\n\xff"}, {"L", ""}}; }), "");
  for (const char* name : {"\x1f", "\x7f", "\t", "\n"}) {
    EXPECT_THAT(fault([&](SliceNote& note) { note.name = name; }), HasSubstr("name: control characters")) << name;
  }
  EXPECT_EQ(fault([](SliceNote& note) { note.name = " ~\xc3\xa9"; }), "");
}

TEST(SliceNote, AllFaultsAreReported) {
  SliceNote note = of_a_pod();
  note.name = "\n";
  note.prepared_for->part = "";
  EXPECT_EQ(validate(note).size(), 2U);
}

TEST(SliceNote, ItsBytesAreLimited) {
  SliceNote note;
  note.name = std::string(kMaxNoteBytes, 'x');
  EXPECT_TRUE(validate(note).empty());
  note.name += 'x';
  ASSERT_EQ(validate(note).size(), 1U);
  EXPECT_EQ(validate(note).front().what, "texts of 4001 bytes together are not legal; at most 4000 are");

  note = of_a_pod();
  EXPECT_EQ(bytes_of(note), std::string("u1" "main" "u1," "KEY=value;" "default/p/main").size());
  for (const std::string byte : {" ", ";", "%", "\n", "\x7f", "\xc3"}) {
    note.prepared_for->environment = {{byte, byte}};
    EXPECT_EQ(bytes_of(note), std::string("u1" "main" "u1," "%20=%20;" "default/p/main").size()) << byte;
  }
  for (const std::string byte : {"!", "~", ",", ":"}) {
    note.prepared_for->environment = {{byte, byte}};
    EXPECT_EQ(bytes_of(note), std::string("u1" "main" "u1," "!=!;" "default/p/main").size()) << byte;
  }
}

TEST(JournalState, ARefusedNoteNamesItsSliceAndChangesNothing) {
  JournalState state;
  ASSERT_TRUE(apply_event(state, PutNote{"s-1", of_a_pod()}));
  const JournalState before = state;
  SliceNote illegal = of_a_pod();
  illegal.prepared_for->part = "a b";
  const auto refused = apply_event(state, PutNote{"s-1", illegal});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().what, "journal: note s-1: part: 1 to 253 letters, digits and . _ : / - are legal");
  EXPECT_EQ(apply_event(state, PutNote{"a b", of_a_pod()}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(apply_event(state, DropNote{"a b"}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(state, before);
}

TEST(JournalState, ANoteIsReplacedAndDeleted) {
  JournalState state;
  ASSERT_TRUE(apply_all(state, {PutNote{"s-1", SliceNote()}, PutNote{"s-1", of_a_pod()}}));
  EXPECT_EQ(state.notes.at("s-1"), of_a_pod());
  ASSERT_TRUE(apply_event(state, DropNote{"s-2"})) << "a note that is not there";
  EXPECT_EQ(state.notes.size(), 1U);
  ASSERT_TRUE(apply_event(state, DropNote{"s-1"}));
  EXPECT_EQ(state, JournalState());
}

}  // namespace
}  // namespace carve
