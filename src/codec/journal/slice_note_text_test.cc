#include "codec/journal/slice_note_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace carve::codec {
namespace {

using testing::HasSubstr;

/// The reader and writer of the releases before version 1, reduced to the fields of a note.
namespace unversioned {

std::string word_of(const std::string& text, const std::string& key) {
  const auto at = text.find(" " + key + "=");
  if (at == std::string::npos) return {};
  const auto begin = at + key.size() + 2;
  return text.substr(begin, text.find(' ', begin) - begin);
}

SliceNote read(const std::string& text) {
  SliceNote note;
  note.keep = text.rfind("keep=1", 0) == 0;
  const auto uid = text.find(" uid=");
  if (uid != std::string::npos) {
    note.uid = static_cast<std::uint32_t>(std::strtoul(text.c_str() + uid + 5, nullptr, 10));
  }
  const std::string head = text.substr(0, text.find(" name="));
  note.in_private_folder = word_of(head, "gated") == "1";
  const std::string owner = word_of(head, "owner");
  if (const auto slash = owner.find('/'); slash != std::string::npos) {
    note.prepared_for.emplace();
    note.prepared_for->owner = {owner_kind_from(owner.substr(0, slash)).value(), owner.substr(slash + 1)};
    note.prepared_for->part = word_of(head, "part");
    note.prepared_for->ending = word_of(head, "ending") == "1";
    std::istringstream pods(word_of(head, "pods"));
    for (std::string pod; std::getline(pods, pod, ',');) note.prepared_for->pods.push_back(pod);
    std::istringstream variables(word_of(head, "env"));
    for (std::string one; std::getline(variables, one, ';');) {
      const auto equals = one.find('=');
      if (equals != std::string::npos) note.prepared_for->environment[one.substr(0, equals)] = one.substr(equals + 1);
    }
  }
  const auto name = text.find(" name=");
  if (name != std::string::npos) note.name = text.substr(name + 6);
  return note;
}

std::string write(const SliceNote& note) {
  std::string text = std::string("keep=") + (note.keep ? "1" : "0") + " uid=" + std::to_string(note.uid);
  if (note.in_private_folder) text += " gated=1";
  if (note.prepared_for) {
    const auto& part = *note.prepared_for;
    text += " owner=" + std::string(to_string(part.owner.kind)) + "/" + part.owner.uid + " part=" + part.part;
    std::string pods;
    for (const auto& pod : part.pods) pods += (pods.empty() ? " pods=" : ",") + pod;
    text += pods;
    std::string variables;
    for (const auto& [key, value] : part.environment) {
      variables += (variables.empty() ? " env=" : ";") + key + "=" + value;
    }
    text += variables;
    if (part.ending) text += " ending=1";
  }
  return text + " name=" + note.name;
}

}  // namespace unversioned

SliceNote of_a_pod(std::map<std::string, std::string> environment) {
  SliceNote note;
  note.keep = true;
  note.prepared_for = {{OwnerKind::kPod, "u1"}, "main", {"u1", "u2"}, std::move(environment), false};
  note.name = "default/p/main";
  return note;
}

std::string encoded(const SliceNote& note) {
  const auto text = encode_slice_note(note);
  EXPECT_TRUE(text) << text.error().what;
  return text.value_or("");
}

SliceNote decoded(const std::string& text) {
  const auto note = decode_slice_note(text);
  EXPECT_TRUE(note) << text << ": " << note.error().what;
  return note.value_or(SliceNote());
}

TEST(SliceNoteText, EveryFieldHasItsWord) {
  SliceNote note;
  EXPECT_EQ(encoded(note), "keep=0 uid=0 v=1 name=");
  note.keep = note.in_private_folder = true;
  note.uid = 4294967295;
  note.name = "a name=b v=2 ";
  EXPECT_EQ(encoded(note), "keep=1 uid=4294967295 v=1 gated=1 name=a name=b v=2 ");
  note.prepared_for = {{OwnerKind::kClaim, "c/1"}, "gpu", {}, {}, false};
  EXPECT_EQ(encoded(note), "keep=1 uid=4294967295 v=1 gated=1 owner=claim/c/1 part=gpu name=a name=b v=2 ");
  note.prepared_for->pods = {"u2", "u1"};
  note.prepared_for->environment = {{"A", "1,2"}, {"B", ""}};
  note.prepared_for->ending = true;
  const std::string text =
      "keep=1 uid=4294967295 v=1 gated=1 owner=claim/c/1 part=gpu pods=u2,u1 env=A=1,2;B= ending=1 name=a name=b v=2 ";
  EXPECT_EQ(encoded(note), text);
  EXPECT_EQ(decoded(text), note);
}

/// Releases before version 1 lost the rest of such a value, and what follows it.
TEST(SliceNoteText, ValuesWithSeparatorsThatTheUnversionedTextLostAreReadBack) {
  for (const std::string value : {"a b", "a;b", "x name=y", "x ending=1", "x owner=pod/u9"}) {
    const SliceNote note = of_a_pod({{"K", value}, {"L", "1"}});
    EXPECT_NE(unversioned::read(unversioned::write(note)), note) << value << ": nothing to repair";
    EXPECT_EQ(decoded(encoded(note)), note) << value;
  }
  for (const std::string value : {"a\nb", "a\tb", "%20", "%", "\xc3\xa9", "\x7f", "a=b", "="}) {
    const SliceNote note = of_a_pod({{"K", value}, {value.find('=') == std::string::npos ? value : "L", "1"}});
    EXPECT_EQ(decoded(encoded(note)), note) << value;
    EXPECT_EQ(encoded(note).find_first_of("\n\t"), std::string::npos);
  }
}

TEST(SliceNoteText, OnlyBytesThatNeedItAreEscaped) {
  EXPECT_THAT(encoded(of_a_pod({{"K", "!\"#$&'()*+,-./:<=>?@AZ[\\]^_`az{|}~"}})),
              HasSubstr(" env=K=!\"#$&'()*+,-./:<=>?@AZ[\\]^_`az{|}~ "));
  EXPECT_THAT(encoded(of_a_pod({{"K", " ;%\n\xff"}})), HasSubstr(" env=K=%20%3B%25%0A%FF "));
}

TEST(SliceNoteText, TextWithoutAVersionIsReadLeniently) {
  SliceNote note;
  EXPECT_EQ(decoded(""), note);
  EXPECT_EQ(decoded("cgroup=/carve/run-1"), note);
  EXPECT_EQ(decoded("keep=0 uid=x gated=0 owner=pod part=main"), note);
  EXPECT_EQ(decoded("keep=0 owner=local/u1 part=main"), note);
  EXPECT_EQ(decoded("keep=0 owner=pod/a+b part=main"), note);
  EXPECT_EQ(decoded("keep=0 owner=pod/u1"), note);
  EXPECT_EQ(decoded("uid=7 keep=1"), note) << "keep= is expected at the start";
  note.name = "x v=1 gated=1";
  EXPECT_EQ(decoded("keep=0 name=x v=1 gated=1"), note) << "a version in the name is none";
  note = of_a_pod({{"K", "%20%zz"}, {"E", ""}, {"Q", "a=b,c"}});
  note.prepared_for->ending = note.in_private_folder = true;
  note.uid = 7;
  EXPECT_EQ(decoded("keep=1 color=red ending=1 env=K=%20%zz;lost;=lost;E=;Q=a=b,c pods=u1,,a+b,u2 uid=7 part=main "
                    "gated=1 owner=pod/u1 name=default/p/main"),
            note);
}

/// An earlier release wrote texts of up to kMaxNoteText bytes. They must also fit with the words of version 1.
TEST(SliceNoteText, ALongNameWithoutAVersionIsShortened) {
  const std::string start = "keep=1 uid=0 owner=pod/u1 part=main env=K=v name=";
  const auto note = decoded(start + std::string(kMaxNoteText - start.size(), 'x'));
  EXPECT_EQ(bytes_of(note), kMaxNoteBytes);
  EXPECT_GE(note.name.size(), kMaxNoteBytes - 20);
  EXPECT_EQ(decoded(encoded(note)), note);
  EXPECT_EQ(decode_slice_note(std::string(kMaxNoteText + 1, 'x')).error().code, Code::kInvalidArgument);
  const auto no_name = decode_slice_note("keep=1 owner=pod/u1 part=main env=K=" + std::string(4040, 'x'));
  EXPECT_THAT(no_name.error().what, HasSubstr("texts of"));
  EXPECT_THAT(decode_slice_note("keep=1 name=a\x1f").error().what, HasSubstr("name: control characters"));
}

TEST(SliceNoteText, VersionOneIsReadStrictly) {
  const std::string good = "keep=1 uid=7 v=1 gated=1 owner=pod/u1 part=main pods=u1,u2 env=A=1;B=2 ending=1 name=n";
  EXPECT_EQ(encoded(decoded(good)), good);
  const std::map<std::string, std::string> reasons = {
      {"keep=2 uid=7 v=1 name=n", "keep: at the start, 0 and 1"},
      {"uid=7 keep=1 v=1 name=n", "keep: at the start, 0 and 1"},
      {"keep=1 v=1 uid=7 name=n", "keep is not followed by uid"},
      {"keep=11 uid=7 v=1 name=n", "keep is not followed by uid"},
      {"keep=1 uid=07 v=1 name=n", "not in canonical form"},
      {"keep=1 uid= v=1 name=n", "uid: 0 to 4294967295"},
      {"keep=1 uid=-1 v=1 name=n", "uid: 0 to 4294967295"},
      {"keep=1 uid=4294967296 v=1 name=n", "uid: 0 to 4294967295"},
      {"keep=1 uid=7 gated=1 v=1 name=n", "uid is not followed by v"},
      {"keep=1 uid=7 v=1", "from '' on"},
      {"keep=1 uid=7 v=1 gated=0 name=n", "from ' gated=0 name=n' on"},
      {"keep=1 uid=7 v=1 gated=1 gated=1 name=n", "from ' gated=1 name=n' on"},
      {"keep=1 uid=7 v=1 part=main name=n", "from ' part=main name=n' on"},
      {"keep=1 uid=7 v=1 color=red name=n", "from ' color=red name=n' on"},
      {"keep=1 uid=7 v=1 owner=local/u part=main name=n", "pod/<UID> and claim/<UID>"},
      {"keep=1 uid=7 v=1 owner=pod part=main name=n", "pod/<UID> and claim/<UID>"},
      {"keep=1 uid=7 v=1 owner=pod/ part=main name=n", "owner: uid: 1 to 253"},
      {"keep=1 uid=7 v=1 owner=pod/u name=n", "owner is not followed by part"},
      {"keep=1 uid=7 v=1 owner=pod/u part= name=n", "part: 1 to 253"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p pods=u,,v name=n", "pods[1]: 1 to 253"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p pods= name=n", "not in canonical form"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p pods=u, name=n", "not in canonical form"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A name=n", "env: a variable without ="},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env==1 name=n", "environment: keys of"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A=%2 name=n", "after % two upper case hex digits"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A=%3b name=n", "after % two upper case hex digits"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A=%41 name=n", "not in canonical form"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A%3D=1 name=n", "environment: keys of"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A=%00 name=n", "values without NUL"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=B=1;A=1 name=n", "not in canonical form"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p env=A=1;A=2 name=n", "not in canonical form"},
      {"keep=1 uid=7 v=1 owner=pod/u part=p ending=1 pods=u name=n", "from ' pods=u name=n' on"},
      {"keep=1 uid=7 v=1 name=a\x1f", "name: control characters"},
  };
  for (const auto& [text, reason] : reasons) {
    const auto note = decode_slice_note(text);
    ASSERT_FALSE(note) << text;
    EXPECT_EQ(note.error().code, Code::kInvalidArgument) << text;
    EXPECT_THAT(note.error().what, HasSubstr(reason)) << text;
  }
}

TEST(SliceNoteText, AnotherVersionIsRefusedWithItsNumber) {
  for (const char* text : {"keep=1 uid=7 v=2 name=n", "keep=1 uid=7 color=red v=2 name=n", "keep=1 v=2"}) {
    const auto note = decode_slice_note(text);
    ASSERT_FALSE(note) << text;
    EXPECT_EQ(note.error().code, Code::kUnimplemented) << text;
    EXPECT_EQ(note.error().what,
              "note: version 2 was written by another build; this one reads 1 and texts without one");
  }
}

TEST(SliceNoteText, IllegalNotesAreNotWritten) {
  SliceNote note = of_a_pod({});
  note.prepared_for->part = "a b";
  EXPECT_EQ(encode_slice_note(note).error().what, "note: part: 1 to 253 letters, digits and . _ : / - are legal");
}

/// Releases before version 1 cannot start with a longer text.
TEST(SliceNoteText, TheLargestNoteFits) {
  SliceNote note = of_a_pod({{"K", ""}});
  note.prepared_for->owner.kind = OwnerKind::kClaim;
  note.prepared_for->ending = note.in_private_folder = true;
  note.uid = 4294967295;
  note.prepared_for->environment["K"] = std::string((kMaxNoteBytes - bytes_of(note)) / 3, ' ');
  note.name += std::string(kMaxNoteBytes - bytes_of(note), 'x');
  const std::string text = encoded(note);
  EXPECT_LE(text.size(), kMaxNoteText);
  EXPECT_GT(text.size(), kMaxNoteBytes);
  EXPECT_EQ(decoded(text), note);
}

rc::Gen<std::string> names() {
  const auto byte = rc::gen::elementOf(std::string("abzAZ09._:/-"));
  return rc::gen::map(rc::gen::nonEmpty(rc::gen::container<std::string>(byte)),
                      [](const std::string& name) { return name.substr(0, 253); });
}

/// Text with many of the bytes that mean something in a note.
rc::Gen<std::string> texts(const std::string& without) {
  const auto byte = rc::gen::suchThat(
      rc::gen::oneOf(rc::gen::elementOf(std::string(" ;%=,kv1")), rc::gen::arbitrary<char>()),
      [without](char c) { return c != '\0' && without.find(c) == std::string::npos; });
  return rc::gen::container<std::string>(byte);
}

SliceNote arbitrary_note(const rc::Gen<std::string>& values) {
  SliceNote note;
  note.keep = *rc::gen::arbitrary<bool>();
  note.uid = *rc::gen::arbitrary<std::uint32_t>();
  note.in_private_folder = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) {
    auto& part = note.prepared_for.emplace();
    part.owner = {*rc::gen::element(OwnerKind::kPod, OwnerKind::kClaim), *names()};
    part.part = *names();
    part.pods = *rc::gen::container<std::vector<std::string>>(names());
    part.environment = *rc::gen::container<std::map<std::string, std::string>>(rc::gen::nonEmpty(texts("=")), values);
    part.ending = *rc::gen::arbitrary<bool>();
  }
  note.name = *rc::gen::element<std::string>("", "default/p/main", "a name=b", " v=2 ", "x\xc3\xa9");
  return note;
}

RC_GTEST_PROP(SliceNoteText, LegalNotesAreReadBackAndIllegalOnesAreNeverWritten, ()) {
  const SliceNote note = arbitrary_note(texts(""));
  const auto text = encode_slice_note(note);
  RC_ASSERT(text.has_value() == validate(note).empty());
  RC_CLASSIFY(text.has_value());
  RC_CLASSIFY(note.prepared_for.has_value());
  if (!text) return;
  RC_ASSERT(decode_slice_note(*text).value() == note);
  RC_ASSERT(text->size() <= kMaxNoteText);
  RC_ASSERT(std::none_of(text->begin(), text->end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }));
}

/// An agent may be replaced by an earlier release, and by a later one again.
RC_GTEST_PROP(SliceNoteText, NotesOfEarlierReleasesAreReadInBothDirections, ()) {
  SliceNote note = arbitrary_note(rc::gen::container<std::string>(rc::gen::elementOf(std::string("aZ09_.:/-,"))));
  if (note.prepared_for) {
    std::map<std::string, std::string> environment;
    for (const auto& [key, value] : note.prepared_for->environment) environment[*names()] = value;
    note.prepared_for->environment = environment;
  }
  RC_PRE(validate(note).empty());
  RC_ASSERT(unversioned::read(encode_slice_note(note).value()) == note);
  RC_ASSERT(decode_slice_note(unversioned::write(note)).value() == note);
}

/// Any text that is accepted can be written again.
RC_GTEST_PROP(SliceNoteText, EveryTextThatIsReadLeadsToALegalNote, ()) {
  const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "keep=1", "keep=0", " uid=7", " uid=", " v=1", " gated=1", " owner=pod/u", " owner=claim/c", " part=p", " pods=u",
      ",v", ",", " env=A=1", ";B=%20", ";", "=", "%", " ending=1", " name=n", " ", "\xc3", "\x1f"));
  std::string text = *rc::gen::element<std::string>("", "keep=1 uid=7 v=1", "keep=0 uid=7 owner=pod/u part=p");
  for (const auto& word : words) text += word;
  const auto note = decode_slice_note(text);
  RC_CLASSIFY(note.has_value());
  if (!note) return;
  RC_ASSERT(validate(*note).empty());
  RC_ASSERT(decode_slice_note(encode_slice_note(*note).value()).value() == *note);
}

}  // namespace
}  // namespace carve::codec
