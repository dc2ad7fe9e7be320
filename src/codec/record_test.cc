#include "codec/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "codec/journal/journal_text.h"

namespace carve::codec {
namespace {

using testing::HasSubstr;

const std::string kFixtures = CARVE_FIXTURES;

/// The name and text of every file in a fixture folder.
std::map<std::string, std::string> fixtures(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures + "/" + folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    out[entry.path().stem().string()] = std::string(std::istreambuf_iterator<char>(in), {});
  }
  return out;
}

RecordCard card(const std::string& last, Bytes memory, std::uint32_t compute) {
  return RecordCard{CardId("GPU-8f0c5a1e-0000-4000-8000-00000000000" + last), memory,
                    CoreShare(compute)};
}

/// The records of the golden texts of version 1, written by hand.
std::map<std::string, Record> golden_v1() {
  std::map<std::string, Record> out;
  RecordPart run;
  run.part = "main";
  run.cards = {card("1", Bytes::gib(4), 30)};
  out["local_run"] = Record{0, {OwnerKind::kLocal, "run-1"}, {run}};

  RecordPart whole;
  whole.part = "gpu";
  whole.exclusive = true;
  whole.whole = true;
  whole.cards = {card("1", Bytes(150754820096), 100)};
  out["claim_whole_card"] = Record{18446744073709551615ULL, {OwnerKind::kClaim, "c-1"}, {whole}};

  RecordPart init{"init",
                  Phase::kInit,
                  false,
                  false,
                  ShareClass::kBestEffort,
                  PriorityClass::kOffline,
                  "gpushare",
                  {card("1", Bytes::gib(1), 0)}};
  RecordPart train{"train",
                   Phase::kRun,
                   false,
                   false,
                   ShareClass::kFixed,
                   PriorityClass::kOnline,
                   "qgpu",
                   {card("1", Bytes::gib(4), 20), card("2", Bytes::gib(4), 20)}};
  out["pod_init_and_two_cards"] =
      Record{7, {OwnerKind::kPod, "3b1f5c1e-7a55-4d2e-9d6e-4f8f1d1f0a11"}, {init, train}};
  return out;
}

std::map<std::string, Record> golden_v2() {
  RecordPart capped;
  capped.part = "main";
  capped.cards = {card("1", Bytes(1), 30)};
  capped.ceiling = CoreShare(60);
  return {{"ceiling", Record{0, {OwnerKind::kLocal, "a"}, {capped}}}};
}

void expect_golden(const std::string& version, const std::map<std::string, Record>& records) {
  const auto texts = fixtures("record/" + version);
  ASSERT_EQ(texts.size(), records.size());
  for (const auto& [name, text] : texts) {
    ASSERT_TRUE(records.contains(name)) << name;
    const auto written = encode_record(records.at(name));
    ASSERT_TRUE(written) << written.error().what;
    EXPECT_EQ(*written, text) << name;
    const auto read = decode_record(text);
    ASSERT_TRUE(read) << name << ": " << read.error().what;
    EXPECT_EQ(*read, records.at(name)) << name;
  }
}

TEST(Record, GoldenTextsAreWrittenAndReadToTheByte) {
  expect_golden("v1", golden_v1());
  expect_golden("v2", golden_v2());
}

TEST(Record, TextThatIsNotARecordIsRefusedWithAReason) {
  const std::map<std::string, std::string> reasons = {
      {"newer_version", "version 3 is unknown; this build reads 1 to 2"},
      {"ceiling_in_version_1", "is not in canonical form"},
      {"no_ceiling_in_version_2", "is not in canonical form"},
      {"ceiling_of_a_whole_card", "is not in canonical form"},
      {"ceiling_below_compute", "compute 30 is above the ceiling, 20"},
      {"ceiling_above_card", "ceiling is not a whole number from 0 to 100"},
      {"older_version", "version 0 is unknown"},
      {"no_version", "has no version v"},
      {"unknown_member", "the record has a member that this version does not know"},
      {"repeated_member", "is not in canonical form"},
      {"space", "is not in canonical form"},
      {"negative_epoch", "epoch is not a whole number"},
      {"no_part", "parts: 0 is not legal"},
      {"part_twice", "part main: named twice"},
      {"zero_bytes", "memory of 0 bytes is not legal; at least 1 byte is"},
      {"fraction_of_a_byte", "parts[0].cards[0] bytes is not a whole number"},
      {"compute_above_card", "compute is not a whole number from 0 to 100"},
      {"no_guarantee", "compute 0 is not legal"},
      {"unknown_class", "parts[0] share is not fixed, burst, besteffort or node"},
      {"illegal_uuid", "uuid: 1 to 253 letters"},
      {"flag_false", "init is not true"},
      {"whole_not_exclusive", "a whole card must be exclusive"},
      {"cut_off", "is not JSON"},
      {"a_list", "has no version v"},
  };
  const auto texts = fixtures("record/refused");
  ASSERT_EQ(texts.size(), reasons.size());
  for (const auto& [name, text] : texts) {
    const auto read = decode_record(text);
    ASSERT_FALSE(read) << name;
    EXPECT_THAT(read.error().what, HasSubstr(reasons.at(name))) << name;
  }
}

/// All copies of this value that lack one member, with the member's name.
void without_each(const boost::json::value& value,
                  const std::function<void(const boost::json::value&, const std::string&)>& use) {
  if (const auto* object = value.if_object()) {
    for (const auto& member : *object) {
      auto less = *object;
      less.erase(member.key());
      use(less, std::string(member.key()));
      without_each(member.value(), [&](const boost::json::value& inner, const std::string& name) {
        auto changed = *object;
        changed[member.key()] = inner;
        use(changed, name);
      });
    }
  } else if (const auto* list = value.if_array(); list != nullptr && !list->empty()) {
    without_each(list->front(), [&](const boost::json::value& inner, const std::string& name) {
      auto changed = *list;
      changed.front() = inner;
      use(changed, name);
    });
  }
}

TEST(Record, AMissingMemberIsNamed) {
  const auto text = encode_record(golden_v1().at("local_run"));
  ASSERT_TRUE(text);
  std::set<std::string> missing;
  without_each(boost::json::parse(*text), [&](const boost::json::value& value, const std::string& name) {
    const auto read = decode_record(boost::json::serialize(value));
    if (read) return;  // a flag
    EXPECT_THAT(read.error().what, HasSubstr("has no " + name));
    missing.insert(name);
  });
  EXPECT_THAT(missing, testing::IsSupersetOf({"v", "epoch", "owner", "kind", "uid", "parts", "part", "share",
                                              "priority", "dialect", "cards", "uuid", "bytes", "compute"}));
}

TEST(Record, AMemberThatIsNotAnObjectIsNamed) {
  auto value = boost::json::parse(*encode_record(golden_v1().at("local_run")));
  value.at("parts").at(0).at("cards") = boost::json::array{3};
  EXPECT_THAT(decode_record(boost::json::serialize(value)).error().what,
              HasSubstr("parts[0].cards[0] is not an object"));
}

TEST(Record, SizeAndDepthAreBounded) {
  EXPECT_LE(4 * kMaxRecordText, 256U * 1024) << "the annotations of a pod have 256 KiB together";
  EXPECT_THAT(decode_record(std::string(kMaxRecordText + 1, ' ')).error().what,
              HasSubstr("is too long"));
  EXPECT_FALSE(decode_record(std::string(1000, '[')));
  Record large = golden_v1().at("local_run");
  large.parts.clear();
  for (std::size_t i = 0; i < kMaxPartsPerRecord; ++i) {
    RecordPart part;
    part.part = std::string(200, 'p') + std::to_string(i);
    for (int c = 0; c < 16; ++c) {
      part.cards.push_back(
          RecordCard{CardId(std::string(200, 'c') + std::to_string(c)), Bytes(1), CoreShare(1)});
    }
    large.parts.push_back(part);
  }
  EXPECT_THAT(encode_record(large).error().what, HasSubstr("is too long"));
}

TEST(Record, SlicesConvertBackToTheRecord) {
  for (const auto& [name, record] : golden_v1()) {
    const auto again = record_of(record.epoch, slices_of(record));
    ASSERT_TRUE(again) << name << ": " << again.error().what;
    EXPECT_EQ(*again, record) << name;
  }
  std::vector<Slice> slices = slices_of(golden_v1().at("pod_init_and_two_cards"));
  slices[2].share = ShareClass::kBurst;
  EXPECT_FALSE(record_of(0, slices));
  slices[2].owner.uid = "b";
  EXPECT_FALSE(record_of(0, slices));
  EXPECT_FALSE(record_of(0, {}));
}

SliceNote note(bool keep, std::uint32_t uid, const std::string& name) {
  SliceNote note;
  note.keep = keep;
  note.uid = uid;
  note.name = name;
  return note;
}

constexpr char kPod[] = "3b1f5c1e-7a55-4d2e-9d6e-4f8f1d1f0a11";
constexpr char kTwoCards[] =
    "GPU-8f0c5a1e-0000-4000-8000-000000000001,GPU-8f0c5a1e-0000-4000-8000-000000000002";

/// The notes of the golden file of version 1.
std::map<std::string, SliceNote> golden_notes() {
  std::map<std::string, SliceNote> notes;
  notes["dev-1"] = note(true, 1000, "");
  notes["dev-1"].in_private_folder = true;
  notes["run-1"] = note(false, 1000, "train.py --lr 0.1");
  notes["s-1-0"] = note(true, 0, "default/fraction/gpu");
  notes["s-1-0"].prepared_for = {{OwnerKind::kClaim, "c-1"}, "gpu", {"u-1", "u-2"}, {}, true};
  notes["s-1-1"] = note(true, 0, "team-a/train-0/train");
  notes["s-1-1"].prepared_for = {
      {OwnerKind::kPod, kPod},
      "train",
      {kPod},
      {{"ALIYUN_COM_GPU_VISIBLE_DEVICES", kTwoCards}, {"ESCAPED", " ;%\n\xc3\xa9=,"}, {"NONE", ""}},
      false};
  return notes;
}

/// The notes of the golden file that a release before the versioned note wrote.
std::map<std::string, SliceNote> unversioned_notes() {
  std::map<std::string, SliceNote> notes;
  notes["dev-08492c-2"] = note(true, 1000, "jupyter");
  notes["dev-08492c-2"].in_private_folder = true;
  notes["run-08492c-1"] = note(false, 1000, "train.py --lr 0.1");
  notes["run-08492c-9"] = note(false, 0, "");
  notes["s-08492c-0"] = note(true, 0, "default/fraction/gpu");
  notes["s-08492c-0"].prepared_for = {
      {OwnerKind::kClaim, "c-1"}, "gpu", {kPod, "6c2a1f0e-7a55-4d2e-9d6e-4f8f1d1f0a12"}, {}, true};
  notes["s-08492c-3"] = note(true, 0, "team-a/train-0/train");
  notes["s-08492c-3"].prepared_for = {
      {OwnerKind::kPod, kPod},
      "train",
      {kPod},
      {{"ALIYUN_COM_GPU_MEM_CONTAINER", "8"}, {"ALIYUN_COM_GPU_VISIBLE_DEVICES", kTwoCards}},
      false};
  return notes;
}

TEST(Journal, TheGoldenFileIsWrittenAndReadToTheByte) {
  JournalState state;
  for (const auto& [name, record] : golden_v1()) state.records[record.owner] = record;
  state.counters["slice"] = 3;
  state.notes = golden_notes();
  const auto texts = fixtures("journal/v1");
  const auto written = journal_snapshot(41, state, nullptr);
  ASSERT_TRUE(written);
  ASSERT_TRUE(texts.contains("three_owners"));
  EXPECT_EQ(*written, texts.at("three_owners"));
  const auto read = replay_journal(texts.at("three_owners"));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->state, state);
}

TEST(Journal, NotesOfAnEarlierReleaseAreReadAndWrittenWithAVersion) {
  const std::string text = fixtures("journal/v1").at("unversioned_notes");
  const auto read = replay_journal(text);
  ASSERT_TRUE(read) << read.error().what;
  JournalState state;
  state.notes = unversioned_notes();
  EXPECT_EQ(read->state, state);
  const auto written = journal_snapshot(read->next_number, read->state, nullptr);
  ASSERT_TRUE(written) << written.error().what;
  EXPECT_THAT(*written, HasSubstr("note run-08492c-1 keep=0 uid=1000 v=1 name=train.py --lr 0.1\n"));
  EXPECT_THAT(*written, HasSubstr("note dev-08492c-2 keep=1 uid=1000 v=1 gated=1 name=jupyter\n"));
  EXPECT_THAT(*written, HasSubstr(std::string(" env=ALIYUN_COM_GPU_MEM_CONTAINER=8;ALIYUN_COM_GPU_VISIBLE_DEVICES=") +
                                  kTwoCards + " name=team-a/train-0/train\n"));
  EXPECT_EQ(replay_journal(*written)->state, state);
}

rc::Gen<std::string> names() {
  return rc::gen::suchThat(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abzAZ09._:/-"))),
      [](const std::string& s) { return valid_name(s); });
}

Record arbitrary_record() {
  Record record;
  record.epoch = *rc::gen::arbitrary<std::uint64_t>();
  record.owner =
      Owner{*rc::gen::element(OwnerKind::kPod, OwnerKind::kClaim, OwnerKind::kLocal), *names()};
  auto parts = *rc::gen::unique<std::vector<std::string>>(names());
  parts.resize(std::min<std::size_t>(parts.size(), 4));
  for (const std::string& name : parts) {
    RecordPart part;
    part.part = name;
    part.phase = *rc::gen::element(Phase::kRun, Phase::kInit);
    part.exclusive = *rc::gen::arbitrary<bool>();
    part.whole = part.exclusive && *rc::gen::arbitrary<bool>();
    part.share = *rc::gen::element(ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBestEffort);
    part.priority = *rc::gen::element(PriorityClass::kOnline, PriorityClass::kOffline);
    part.dialect = *names();
    if (*rc::gen::arbitrary<bool>()) part.ceiling = CoreShare(*rc::gen::inRange(80u, 101u));
    auto cards = *rc::gen::unique<std::vector<std::string>>(names());
    cards.resize(std::min<std::size_t>(cards.size(), kMaxCardsPerRequest));
    if (cards.empty()) cards = {"GPU-1"};
    for (const std::string& uuid : cards) {
      // Mostly legal: one card in fifty has no memory, one has compute above the card, one has none.
      const auto oddity = *rc::gen::inRange(0, 50);
      const auto memory = oddity == 47 ? 0 : *rc::gen::arbitrary<std::uint64_t>() | 1;
      const auto compute = oddity == 48 ? 101u : oddity == 49 ? 0u : *rc::gen::inRange(1u, 101u);
      part.cards.push_back(RecordCard{CardId(uuid), Bytes(memory), CoreShare(compute)});
    }
    record.parts.push_back(part);
  }
  return record;
}

RC_GTEST_PROP(Record, WrittenRecordsAreReadBackAndIllegalOnesAreNeverWritten, ()) {
  const Record record = arbitrary_record();
  const auto text = encode_record(record);
  RC_ASSERT(text.has_value() == validate(record).empty());
  RC_CLASSIFY(text.has_value());
  if (text) {
    RC_ASSERT(decode_record(*text).value() == record);
    RC_ASSERT(text->find('\n') == std::string::npos);
  }
}

TEST(Record, AnUnknownVersionIsQuotedUpToALimit) {
  const std::string what = decode_record(R"({"v":")" + std::string(100, 'z') + "\"}").error().what;
  EXPECT_EQ(std::count(what.begin(), what.end(), 'z'), 31) << "after its quote";
}

TEST(Record, ATextIsReadUpToItsLimit) {
  const auto code_of = [](std::size_t size) {
    std::string text = R"({"v":1})";
    text.insert(1, std::string(size - text.size(), ' '));
    return decode_record(text).error().what;
  };
  EXPECT_THAT(code_of(kMaxRecordText), HasSubstr("has no epoch"));
  EXPECT_THAT(code_of(kMaxRecordText + 1), HasSubstr("is too long"));
}

TEST(Record, ATextIsWrittenUpToTheLimitOfReading) {
  Record record = golden_v1().at("local_run");
  record.parts.clear();
  const auto size = [&] { return encode_record(record).value_or("").size(); };
  // Cards of 230 characters fill it, and the name of the last part fills the rest.
  for (std::size_t i = 0; record.parts.empty() || size() + 250 < kMaxRecordText; ++i) {
    if (i % kMaxCardsPerRequest == 0) {
      record.parts.emplace_back();
      record.parts.back().part = "p" + std::to_string(i);
    }
    record.parts.back().cards.push_back(
        RecordCard{CardId(std::string(196, 'c') + std::to_string(1000 + i)), Bytes(1), CoreShare(1)});
  }
  record.parts.back().part += std::string(kMaxRecordText - size(), 'p');
  EXPECT_EQ(size(), kMaxRecordText);
  EXPECT_EQ(decode_record(*encode_record(record)).value(), record);
  record.parts.back().part += 'p';
  EXPECT_THAT(encode_record(record).error().what, HasSubstr("is too long"));
}

TEST(Record, IsReadUpToEightLevelsDeep) {
  const auto refusal = [](std::size_t depth) {
    return decode_record(R"({"v":1,"x":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}")
        .error()
        .what;
  };
  EXPECT_THAT(refusal(8), HasSubstr("has no epoch"));
  EXPECT_THAT(refusal(9), HasSubstr("is not JSON"));
}

TEST(Record, AMemberThatIsNotAListIsNamed) {
  auto value = boost::json::parse(*encode_record(golden_v1().at("local_run")));
  value.at("parts").at(0).at("cards") = 3;
  EXPECT_THAT(decode_record(boost::json::serialize(value)).error().what, HasSubstr("cards is not a list"));
  value.at("parts") = "main";
  EXPECT_THAT(decode_record(boost::json::serialize(value)).error().what, HasSubstr("parts is not a list"));
}

}  // namespace
}  // namespace carve::codec
