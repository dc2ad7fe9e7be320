#include "codec/dra/share_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace carve::codec {
namespace {

using testing::HasSubstr;

TEST(ShareConfig, ReadsAllLegalMembers) {
  EXPECT_EQ(*parse_share_config(R"({"apiVersion":"gpu.elasticgpu.io/v1","kind":"ShareConfig"})"),
            ShareConfig{});
  EXPECT_EQ(*parse_share_config(R"({"kind":"ShareConfig","shareClass":"fixed","priorityClass":"offline",
                                    "apiVersion":"gpu.elasticgpu.io/v1"})"),
            (ShareConfig{ShareClass::kFixed, PriorityClass::kOffline, std::nullopt}));
  EXPECT_EQ(*parse_share_config(R"({"kind":"ShareConfig","apiVersion":"gpu.elasticgpu.io/v1","coreLimit":60})"),
            (ShareConfig{std::nullopt, std::nullopt, CoreShare(60)}));
  for (const char* wrong : {"0", "101", "-1", "\"60\"", "null"}) {
    const auto got = parse_share_config(
        R"({"kind":"ShareConfig","apiVersion":"gpu.elasticgpu.io/v1","coreLimit":)" + std::string(wrong) + "}");
    ASSERT_FALSE(got) << wrong;
    EXPECT_THAT(got.error().what,
                HasSubstr("coreLimit: " + std::string(wrong) + " is not a whole number from 1 to 100"));
  }
}

TEST(ShareConfig, AllFaultsAreReported) {
  const auto got = parse_share_config(
      R"({"apiVersion":"gpu.elasticgpu.io/v1","kind":"GpuConfig","shareClass":"turbo",
          "priorityClass":3,"memory":"4Gi"})");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kInvalidArgument);
  for (const char* part :
       {"kind: must be", "\"turbo\"", "fixed, burst, besteffort or node", "priorityClass: 3", "memory: unknown"})
    EXPECT_THAT(got.error().what, HasSubstr(part));
}

TEST(ShareConfig, AnotherVersionIsRefused) {
  for (const char* text :
       {R"({"apiVersion":"gpu.elasticgpu.io/v2","kind":"ShareConfig"})", R"({"kind":"ShareConfig"})"}) {
    const auto got = parse_share_config(text);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kUnimplemented);
    EXPECT_THAT(got.error().what, HasSubstr("gpu.elasticgpu.io/v1"));
  }
  EXPECT_THAT(parse_share_config(R"({"kind":"ShareConfig"})").error().what, HasSubstr("apiVersion: none is unknown"));
}

TEST(ShareConfig, TextThatIsNotAnObjectIsRefused) {
  for (const char* text : {"", "[]", "null", "{", "[[[[[[[["}) EXPECT_FALSE(parse_share_config(text)) << text;
  EXPECT_FALSE(parse_share_config(std::string(11 * 1024, ' ')));
}

TEST(ShareConfig, IsReadUpToItsLimits) {
  const std::string start = R"({"apiVersion":"gpu.elasticgpu.io/v1","kind":"ShareConfig")";
  const auto padded = [&](std::size_t size) { return start + std::string(size - start.size() - 1, ' ') + "}"; };
  EXPECT_TRUE(parse_share_config(padded(10 * 1024)));
  EXPECT_FALSE(parse_share_config(padded(10 * 1024 + 1)));
  const auto quoted = [&](const std::string& rest) {
    const std::string what = parse_share_config(start + rest + "}").error().what;
    return std::count(what.begin(), what.end(), 'z');
  };
  const std::string longest(100, 'z');
  EXPECT_EQ(quoted(R"(,"shareClass":")" + longest + "\""), 63) << "after its quote";
  EXPECT_EQ(quoted(",\"" + longest + "\":1"), 64);
}

}  // namespace
}  // namespace carve::codec
