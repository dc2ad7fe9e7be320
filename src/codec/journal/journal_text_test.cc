#include "codec/journal/journal_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

namespace carve::codec {
namespace {

using testing::HasSubstr;

Record record(const std::string& uid, std::uint64_t gib = 4) {
  Record r;
  r.owner = Owner{OwnerKind::kLocal, uid};
  RecordPart part;
  part.part = "main";
  part.cards = {RecordCard{CardId("GPU-1"), Bytes::gib(gib), CoreShare(30)}};
  r.parts = {part};
  return r;
}

SliceNote note(const std::string& name, std::uint32_t uid = 0) {
  SliceNote note;
  note.uid = uid;
  note.name = name;
  return note;
}

std::string line(std::uint64_t number, const std::vector<JournalEvent>& events) {
  const auto text = journal_line(number, events);
  EXPECT_TRUE(text) << text.error().what;
  return text.value_or("");
}

std::string three_lines() {
  return journal_header(1) + line(1, {PutRecord{record("a")}, SetCounter{"slice", 1}}) +
         line(2, {PutRecord{record("b")}, PutNote{"b", note("train", 7)}}) +
         line(3, {DropOwner{Owner{OwnerKind::kLocal, "a"}}});
}

TEST(Crc32c, MatchesTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);              // RFC 3720 and every other source
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);    // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);  // RFC 3720 B.4
}

TEST(JournalText, AReplayRestoresTheWrittenState) {
  const std::string text = three_lines();
  const auto replay = replay_journal(text);
  ASSERT_TRUE(replay) << replay.error().what;
  JournalState expected;
  expected.records[Owner{OwnerKind::kLocal, "b"}] = record("b");
  expected.counters["slice"] = 1;
  expected.notes["b"] = note("train", 7);
  EXPECT_EQ(replay->state, expected);
  EXPECT_EQ(replay->next_number, 4u);
  EXPECT_EQ(replay->good_bytes, text.size());
  EXPECT_EQ(replay->torn_bytes, 0u);
}

TEST(JournalText, EveryTornTailKeepsTheTransactionsBeforeIt) {
  const std::string text = three_lines();
  const std::size_t header = journal_header(1).size();
  for (std::size_t cut = header; cut <= text.size(); ++cut) {
    const auto replay = replay_journal(text.substr(0, cut));
    ASSERT_TRUE(replay) << cut << ": " << replay.error().what;
    const std::string whole = text.substr(0, replay->good_bytes);
    EXPECT_EQ(whole.back(), '\n');
    EXPECT_EQ(replay->good_bytes + replay->torn_bytes, cut);
    EXPECT_EQ(text.substr(0, cut).find('\n', replay->good_bytes), std::string::npos);
  }
  for (std::size_t cut = 0; cut < header; ++cut) {
    EXPECT_FALSE(replay_journal(text.substr(0, cut))) << cut;
  }
}

TEST(JournalText, EveryFlippedBitBeforeTheLastLineEndIsReported) {
  const std::string text = three_lines();
  for (std::size_t byte = 0; byte + 1 < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      const auto replay = replay_journal(flipped);
      // A flip in the last line may turn a byte into NUL, like a block that never reached the disk, which is a torn
      // tail.
      if (replay) {
        EXPECT_GT(replay->torn_bytes, 0u) << byte << " " << bit;
        EXPECT_NE(flipped.find('\0'), std::string::npos) << byte << " " << bit;
      }
    }
  }
}

TEST(JournalText, MissingBlocksAreATornTailAtTheEndAndDamageInTheMiddle) {
  std::string text = three_lines();
  const auto zeros = replay_journal(text + std::string(100, '\0'));
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->torn_bytes, 100u);
  const std::size_t second = text.find("uid=7");
  text[second] = 'X';
  const auto damaged = replay_journal(text);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, Code::kDataLoss);
  EXPECT_THAT(damaged.error().what, HasSubstr("line 3, byte "));
}

TEST(JournalText, ALostOrRepeatedLineIsReported) {
  const std::string lost = journal_header(1) + line(2, {SetCounter{"n", 1}});
  EXPECT_THAT(replay_journal(lost).error().what, HasSubstr("transaction 1 is missing"));
  const std::string one = line(1, {SetCounter{"n", 1}});
  EXPECT_EQ(replay_journal(journal_header(1) + one + one).error().code, Code::kDataLoss);
}

TEST(JournalText, AnotherVersionIsRefusedWithItsNumber) {
  const auto replay = replay_journal("carve-journal 2 1 00000000\n");
  ASSERT_FALSE(replay);
  EXPECT_EQ(replay.error().code, Code::kUnimplemented);
  EXPECT_THAT(replay.error().what, HasSubstr("version 2"));
  EXPECT_EQ(replay_journal("carve-journal 0 1 00000000\n").error().code, Code::kUnimplemented);
  EXPECT_EQ(replay_journal("#!/bin/sh\n").error().code, Code::kInvalidArgument);
  EXPECT_EQ(replay_journal("").error().code, Code::kDataLoss);
}

TEST(JournalText, ASnapshotLeadsToTheSameState) {
  const auto replay = replay_journal(three_lines());
  ASSERT_TRUE(replay);
  std::uint64_t next = 0;
  const auto text = journal_snapshot(77, replay->state, &next);
  ASSERT_TRUE(text);
  const auto again = replay_journal(*text);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->state, replay->state);
  EXPECT_EQ(again->next_number, next);
}

TEST(JournalText, EventsThatWouldNotBeReadBackAreNotWritten) {
  EXPECT_FALSE(journal_line(1, {}));
  EXPECT_FALSE(journal_line(1, {PutNote{"a b", note("x")}}));
  EXPECT_FALSE(journal_line(1, {PutNote{"a", note("x\ty")}}));
  EXPECT_FALSE(journal_line(1, {PutNote{"a", note("x\ny")}}));
  EXPECT_FALSE(journal_line(1, {DropNote{"a b"}}));
  EXPECT_FALSE(journal_line(1, {PutRecord{Record{}}}));
  EXPECT_EQ(
      journal_line(1, std::vector<JournalEvent>(200, PutNote{"a", note(std::string(kMaxNoteBytes, 'x'))}))
          .error()
          .code,
      Code::kOutOfRange);
}

TEST(JournalText, ALineMayBeAsLongAsIsLegal) {
  const auto notes = [](std::size_t last) {
    std::vector<JournalEvent> events;
    for (std::size_t left = last; left > 0; left -= std::min(left, kMaxNoteBytes)) {
      const std::string name(std::min(left, kMaxNoteBytes), 'x');
      events.emplace_back(PutNote{"n" + std::to_string(events.size()), note(name)});
    }
    return events;
  };
  std::size_t fits = kMaxJournalLine / 2;  // the longest text of notes that fits a line
  for (std::size_t step = kMaxJournalLine / 4; step > 0; step /= 2) {
    while (journal_line(1, notes(fits + step))) fits += step;
  }
  const std::string longest = line(1, notes(fits));
  EXPECT_EQ(longest.size(), kMaxJournalLine);
  EXPECT_EQ(kMaxJournalLine, 256U * 1024);
  const auto replay = replay_journal(journal_header(1) + longest);
  ASSERT_TRUE(replay) << "a written line can be read";
  EXPECT_EQ(replay->lines, 1U);
}

TEST(JournalText, ANoteIsPutReplacedAndDropped) {
  const std::string put = journal_header(1) + line(1, {PutNote{"s-1", note("a")}, PutNote{"s-2", note("")}}) +
                          line(2, {PutNote{"s-1", note("b")}});
  EXPECT_EQ(replay_journal(put)->state.notes,
            (std::map<std::string, SliceNote>{{"s-1", note("b")}, {"s-2", note("")}}));
  const auto dropped = replay_journal(put + line(3, {DropNote{"s-1"}, DropNote{"s-2"}, DropNote{"s-3"}}));
  ASSERT_TRUE(dropped) << dropped.error().what;
  EXPECT_EQ(dropped->state, JournalState());
}

/// A line with a correct checksum.
std::string raw_line(const std::string& body) {
  const std::string covered = std::to_string(body.size()) + " " + body;
  char crc[16];
  std::snprintf(crc, sizeof crc, "%08x ", crc32c(covered));
  return crc + covered + "\n";
}

TEST(JournalText, ANoteThatCannotBeReadIsReportedWithItsPlace) {
  const auto error = [](const std::string& event) {
    const auto replay = replay_journal(journal_header(1) + raw_line("1 " + event));
    return replay ? Error{} : replay.error();
  };
  const Error later = error("note s-1 keep=1 uid=0 v=2 name=");
  EXPECT_EQ(later.code, Code::kUnimplemented);
  EXPECT_THAT(later.what, HasSubstr("journal: line 2, byte "));
  EXPECT_THAT(later.what, HasSubstr("note: version 2 was written by another build"));
  const Error illegal = error("note s-1 keep=1 uid=x v=1 name=");
  EXPECT_EQ(illegal.code, Code::kDataLoss);
  EXPECT_THAT(illegal.what, HasSubstr("note: uid: 0 to 4294967295 are legal"));
  EXPECT_EQ(error("note s-1 ").code, Code::kDataLoss);
}

TEST(JournalState, NamesAreValidated) {
  JournalState state;
  const auto code = [&](const JournalEvent& event) {
    const auto applied = apply_event(state, event);
    return applied ? std::nullopt : std::optional(applied.error().code);
  };
  EXPECT_EQ(code(SetCounter{"a b", 1}), Code::kInvalidArgument);
  EXPECT_EQ(code(DropOwner{Owner{OwnerKind::kPod, "a b"}}), Code::kInvalidArgument);
  EXPECT_EQ(code(PutRecord{Record{}}), Code::kInvalidArgument);
  EXPECT_EQ(state, JournalState{});
  EXPECT_EQ(code(SetCounter{"n", 5}), std::nullopt);
  EXPECT_EQ(code(SetCounter{"n", 5}), std::nullopt) << "the same value again";
  EXPECT_EQ(state.counters.at("n"), 5U);
}

TEST(JournalState, CountersNeverDecreaseAndATransactionIsAllOrNothing) {
  JournalState state;
  ASSERT_TRUE(apply_all(state, {SetCounter{"n", 5}}));
  const JournalState before = state;
  EXPECT_EQ(apply_all(state, {PutRecord{record("a")}, SetCounter{"n", 4}}).error().code,
            Code::kOutOfRange);
  EXPECT_EQ(state, before);
  EXPECT_EQ(apply_event(state, DropOwner{Owner{OwnerKind::kLocal, "z"}}).error().code,
            Code::kNotFound);
}

}  // namespace
}  // namespace carve::codec
