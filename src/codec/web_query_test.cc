#include "codec/web_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kLegal[] = {"node", "limit"};

TEST(WebQuery, ReadsAndDecodesParameters) {
  const auto query = parse_web_query("node=a%2Fb+c&limit=", kLegal);
  ASSERT_TRUE(query);
  EXPECT_EQ(text_in(*query, "node"), "a/b c");
  EXPECT_EQ(text_in(*query, "limit"), "");
  EXPECT_EQ(text_in(*query, "absent"), "");
  EXPECT_TRUE(parse_web_query("", kLegal)->empty());
}

TEST(WebQuery, RefusesWhatIsNotLegal) {
  const auto why = [](std::string_view text) { return parse_web_query(text, kLegal).error().what; };
  EXPECT_THAT(why("nod=1"), HasSubstr("\"nod\" is not a parameter of this path; legal are node, limit"));
  EXPECT_THAT(why("node=1&node=2"), HasSubstr("node: it is given twice"));
  for (const char* text : {"node=%", "node=%4", "node=%zz", "node=%00", "node=%0A", "node=\x7f"})
    EXPECT_THAT(why(text), HasSubstr("invalid escape or a control character")) << text;
  EXPECT_THAT(why("node=" + std::string(5000, 'x')), HasSubstr("longer than 4096 bytes"));
  EXPECT_THAT(parse_web_query("a=1", {}).error().what, HasSubstr("legal is none"));
}

TEST(WebQuery, NumbersHaveARange) {
  const auto number = [](std::string_view text) {
    return number_in(*parse_web_query(text, kLegal), "limit", 5, 1, 10);
  };
  EXPECT_EQ(*number(""), 5U);
  EXPECT_EQ(*number("limit="), 5U);
  EXPECT_EQ(*number("limit=1"), 1U);
  EXPECT_EQ(*number("limit=10"), 10U);
  for (const char* text : {"limit=0", "limit=11", "limit=-1", "limit=1x", "limit=x", "limit=99999999999999999999999"})
    EXPECT_THAT(number(text).error().what, HasSubstr("is not a number from 1 to 10")) << text;
}

}  // namespace
}  // namespace carve::codec
