#include "codec/kube/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace carve::codec {
namespace {

using testing::HasSubstr;

TEST(Event, IsAboutOneObject) {
  const auto text =
      encode_event({"Pod", "ml", "p", "u", "SliceRefused", std::string(2000, 'x')}, "p.1", "n1",
                   "carve-agent", {"2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1});
  EXPECT_THAT(text,
              HasSubstr(R"("involvedObject":{"kind":"Pod","namespace":"ml","name":"p","uid":"u")"));
  EXPECT_LT(text.size(), 1600U);
}

TEST(Event, Golden) {
  EventNote note{"Pod", "ml", "p", "u", "Reason", "words", false};
  const EventTimes times{"t1", "t2", 3};
  EXPECT_EQ(encode_event(note, "e", "n1", "carve-agent", times),
            R"({"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"ml"},)"
            R"("involvedObject":{"kind":"Pod",)"
            R"("namespace":"ml","name":"p","uid":"u","apiVersion":"v1"},"type":"Normal","reason":"Reason",)"
            R"("message":"words",)"
            R"("source":{"component":"carve-agent","host":"n1"},"firstTimestamp":"t1","lastTimestamp":"t2",)"
            R"("count":3})");
  note.kind = "Node";
  note.warning = true;
  note.message = std::string(1025, 'x');
  const auto text = encode_event(note, "e", "n1", "carve-agent", times);
  EXPECT_THAT(text, HasSubstr(R"("involvedObject":{"kind":"Node","namespace":"")"));
  EXPECT_THAT(text, HasSubstr(R"("type":"Warning")"));
  EXPECT_THAT(text, HasSubstr("\"" + std::string(1024, 'x') + "\""));
}

TEST(Event, ReadsTheUidOfAnObject) {
  EXPECT_EQ(uid_of(R"({"metadata":{"uid":"u"}})"), "u");
  EXPECT_EQ(uid_of("{"), "");
  EXPECT_EQ(uid_of("{}"), "");
}

}  // namespace
}  // namespace carve::codec
