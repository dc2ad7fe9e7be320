#include "codec/json_pieces.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace carve::codec {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

/// The members' names and texts; nullopt: rejected.
std::optional<Members> members(std::string_view text) {
  JsonPieces pieces(text);
  Members seen;
  const bool whole = pieces.object([&](std::string_view name, JsonPieces::Value value) {
    const auto found = pieces.text(value);
    if (found) seen.emplace_back(name, *found);
    return found.has_value();
  });
  return whole ? std::optional(seen) : std::nullopt;
}

TEST(JsonPieces, ValuesArePiecesOfTheText) {
  const std::string text = R"( {"a" : {"x":[1,2 , {"y":"}"}]}, "b":"t\"x", )"
                           R"("c" : null ,"d":"plain" , "e":-1.5 , "f":[ ] } )";
  EXPECT_EQ(members(text), (Members{{"a", R"({"x":[1,2 , {"y":"}"}]})"},
                                    {"b", R"("t\"x")"},
                                    {"c", "null"},
                                    {"d", R"("plain")"},
                                    {"e", "-1.5"},
                                    {"f", "[ ]"}}));
  JsonPieces pieces(text);
  EXPECT_TRUE(pieces.object([&](std::string_view, JsonPieces::Value value) {
    const auto found = pieces.text(value);
    EXPECT_TRUE(found && found->data() >= text.data() && found->data() + found->size() <= text.data() + text.size());
    return true;
  }));
}

TEST(JsonPieces, AMemberThatIsNotTakenIsSkipped) {
  const std::string text = R"({"a":{"b":[1,{"c":2}]},"d":3})";
  std::vector<std::string> names;
  EXPECT_TRUE(JsonPieces(text).object([&](std::string_view name, JsonPieces::Value) {
    names.emplace_back(name);
    return true;
  }));
  EXPECT_EQ(names, (std::vector<std::string>{"a", "d"}));
}

TEST(JsonPieces, EntersObjectsAndLists) {
  const std::string text = R"({"o": {"in":"x", "n":1 } ,"l":["p" , "q"],"e":[],"z":{}})";
  JsonPieces pieces(text);
  std::string seen;
  EXPECT_TRUE(pieces.object([&](std::string_view name, JsonPieces::Value value) {
    if (name == "o" || name == "z") {
      std::string_view whole;
      const bool read = pieces.object(value, &whole, [&](std::string_view inner, JsonPieces::Value) {
        seen.append(inner) += ';';
        return true;
      });
      seen.append(whole) += ';';
      return read;
    }
    return pieces.array(value, [&](JsonPieces::Value item) {
      const auto one = pieces.plain_text(item);
      if (one) seen.append(*one) += ';';
      return one.has_value();
    });
  }));
  EXPECT_EQ(seen, R"(in;n;{"in":"x", "n":1 };p;q;{};)");
}

TEST(JsonPieces, StopsWhenTheCallerStops) {
  int calls = 0;
  EXPECT_FALSE(JsonPieces(R"({"a":1,"b":2})").object([&](std::string_view, JsonPieces::Value) { return ++calls > 1; }));
  EXPECT_EQ(calls, 1);
}

TEST(JsonPieces, PlainTextHasNoEscapes) {
  const auto plain = [](const std::string& text) -> std::optional<std::string> {
    const std::string whole = "{\"a\":" + text + "}";
    JsonPieces pieces(whole);
    std::optional<std::string> found;
    pieces.object([&](std::string_view, JsonPieces::Value value) {
      if (const auto one = pieces.plain_text(value)) found = std::string(*one);
      return true;
    });
    return found;
  };
  for (const std::string text : {R"("")", R"("a")", R"("sixteen letters.")", "\"\xc3\xa9\""})
    EXPECT_EQ(plain(text), text.substr(1, text.size() - 2));
  for (const std::string text : {R"("a\n")", R"("12345678\u0041")", "1", "{}", "null"})
    EXPECT_FALSE(plain(text)) << text;
}

TEST(JsonPieces, TextThatIsNotJsonIsRejectedAlsoWhereNoPieceIsNeeded) {
  for (const std::string value : {"", "{", "[1,]", "[1 2]", "tru", "truee", "nul", "01", "-", "1.", ".5", "1e", "\"a",
                                  "\"\\x\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\udc00\"", "\"\t\"", "[1]]", "+1",
                                  "\"\xff\"", "{\"a\"}", "{a:1}", "{\"a\":1,}", "1e999"}) {
    const std::string text = R"({"wanted":1,"skipped":)" + value + "}";
    EXPECT_FALSE(members(text)) << text;
    EXPECT_FALSE(JsonPieces(text).object([](std::string_view, JsonPieces::Value) { return true; })) << text;
  }
  for (const std::string text : {"", " ", "{", "}", "{} x", "[1]", "1", "null", "{\"a\\n\":1}"})
    EXPECT_FALSE(members(text)) << text;
  EXPECT_FALSE(members(std::string("{}\0", 3)));
  EXPECT_EQ(members("{}"), Members{});
}

TEST(JsonPieces, StopsAtTheDepthLimit) {
  const auto nested = [](std::size_t depth) {
    return R"({"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(members(nested(JsonPieces::kDepth - 2)));
  EXPECT_FALSE(members(nested(JsonPieces::kDepth)));
  EXPECT_FALSE(members(R"({"a":)" + std::string(1'000'000, '[')));
  EXPECT_TRUE(members("{}")) << "the buffers are usable after a failure";
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
        object += kTexts[pick(2)] + ":" + some_json(random, depth - 1) + (i > 1 ? "," : " ");
      return object + "}";
    }
  }
}

TEST(JsonPieces, AcceptsJsonAndOnlyJson) {
  std::mt19937 random(3);
  std::size_t broken = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto text = "{\"v\":" + some_json(random, 4) + "}";
    ASSERT_TRUE(members(text)) << text;
    text[random() % text.size()] = " \"\\{}[],:0e-tx\n"[random() % 15];
    boost::json::error_code error;
    static_cast<void>(boost::json::parse(text, error));
    if (error) {
      ASSERT_FALSE(members(text)) << text;
    }
    broken += error ? 1 : 0;
  }
  EXPECT_GT(broken, 2'000U);
}

}  // namespace
}  // namespace carve::codec
