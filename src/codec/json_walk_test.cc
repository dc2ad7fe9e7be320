#include "codec/json_walk.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace carve::codec {
namespace {

bool takes(std::string_view text, std::size_t depth = 64) {
  JsonWalk walk(text, depth);
  return walk.value() && walk.over();
}

TEST(JsonWalk, ValuesArePiecesOfTheText) {
  const std::string text = R"( {"a" : {"x":[1,2 , {"y":"}"}]}, "b":"t\"x", "c" : null ,"d":"plain"} )";
  JsonWalk walk(text);
  std::vector<std::string> seen;
  EXPECT_TRUE(walk.object([&](std::string_view name) {
    const auto value = name == "d" ? walk.plain_text() : walk.value();
    if (value) seen.push_back(std::string(name) + "=" + std::string(*value));
    return value.has_value();
  }));
  EXPECT_TRUE(walk.over());
  EXPECT_EQ(seen, (std::vector<std::string>{R"(a={"x":[1,2 , {"y":"}"}]})", R"(b="t\"x")", "c=null", "d=plain"}));
}

TEST(JsonWalk, PlainTextHasNoEscapes) {
  for (const std::string text : {R"("")", R"("a")", R"("sixteen letters.")", R"("twenty-three letters here")"})
    EXPECT_EQ(JsonWalk(text).plain_text(), text.substr(1, text.size() - 2));
  for (const std::string text : {R"("a\n")", R"("12345678\u0041")", "1", "{}", R"("not ended)", "\"\xc3\xa9\""})
    EXPECT_FALSE(JsonWalk(text).plain_text()) << text;
}

TEST(JsonWalk, TextThatIsNotJsonIsRejected) {
  for (const std::string text :
       {"", " ", "{", "}", "[1,]", "{\"a\":1,}", "{\"a\"}", "{a:1}", "[1 2]", "tru", "truee", "nul", "01", "-", "1.",
        ".5", "1e", "1e+", "\"a", "\"\\x\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\t\"", "\"a\nb\"", "[1]]", "{} x", "+1"})
    EXPECT_FALSE(takes(text)) << text;
  EXPECT_FALSE(takes(std::string("[1]\0", 4)));
  for (const std::string text : {"0", "-0.5e-7", "[]", "{}", "[[],{}]", R"("\u00e9\/")", "true", " null "})
    EXPECT_TRUE(takes(text)) << text;
}

// Some parsers read it as infinity, others report an error.
TEST(JsonWalk, ANumberThatExceedsADoubleIsLeftToTheCompleteParser) {
  const std::string most(JsonWalk::kMostDigits, '9');
  for (const auto& text : {most + "e99", "-" + most + "." + most, "0." + most + "e-99"}) EXPECT_TRUE(takes(text));
  for (const auto& text : {most + "9", "0." + most + "9", std::string("1e100"), std::string("1e-100")})
    EXPECT_FALSE(takes(text)) << text;
}

TEST(JsonWalk, StopsAtTheDepthLimit) {
  EXPECT_TRUE(takes("[[[]]]", 3));
  EXPECT_FALSE(takes("[[[]]]", 2));
  EXPECT_FALSE(takes(std::string(1'000'000, '[')));
}

TEST(JsonWalk, AfterAFailureAllCallsFail) {
  for (const char* text : {"x 1", "[1 2]", "[[]5]", "{\"a\" 7}"}) {
    JsonWalk walk(text);
    EXPECT_FALSE(walk.value()) << text;
    EXPECT_FALSE(walk.value()) << text << ": even if a value follows";
    EXPECT_FALSE(walk.plain_text()) << text;
    EXPECT_FALSE(walk.over()) << text;
    EXPECT_EQ(walk.next(), '\0') << text;
  }
}

std::string some_json(std::mt19937& random, int depth) {
  const auto pick = [&](unsigned most) { return random() % (most + 1); };
  static const std::vector<std::string> kTexts = {"\"\"", "\"a\"", "\"elasticgpu.io/gpu-memory\"", R"("q\"\\\n\u0041")",
                                                  "\"a longer text without any escape in it\""};
  switch (depth == 0 ? pick(2) : pick(4)) {
    case 0: return kTexts[pick(4)];
    case 1: return std::to_string(static_cast<int>(pick(2000)) - 1000) + (pick(1) == 0 ? "" : ".5e3");
    case 2: return std::vector<std::string>{"true", "false", "null"}[pick(2)];
    case 3: {
      std::string list = "[";
      for (auto i = pick(3); i > 0; --i) list += some_json(random, depth - 1) + (i > 1 ? ", " : "");
      return list + "]";
    }
    default: {
      std::string object = "{";
      for (auto i = pick(3); i > 0; --i)
        object += kTexts[pick(4)] + ":" + some_json(random, depth - 1) + (i > 1 ? "," : " ");
      return object + "}";
    }
  }
}

TEST(JsonWalk, AcceptsJsonAndOnlyJson) {
  std::mt19937 random(3);
  std::size_t broken = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto text = some_json(random, 4);
    ASSERT_TRUE(takes(text)) << text;
    text[random() % text.size()] = " \"\\{}[],:0e-tx\n"[random() % 15];
    boost::json::error_code error;
    static_cast<void>(boost::json::parse(text, error));
    if (error) {
      ASSERT_FALSE(takes(text)) << text;
    }
    broken += error ? 1 : 0;
  }
  EXPECT_GT(broken, 2'000U);
}

}  // namespace
}  // namespace carve::codec
