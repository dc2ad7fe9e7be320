#include "codec/dra/share_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using testing::HasSubstr;

TEST(ShareConfig, WhatMayBeSaid) {
  EXPECT_EQ(*parse_share_config(R"({"apiVersion":"gpu.elasticgpu.io/v1","kind":"ShareConfig"})"),
            ShareConfig{});
  EXPECT_EQ(*parse_share_config(R"({"kind":"ShareConfig","shareClass":"fixed","priorityClass":"offline",
                                    "apiVersion":"gpu.elasticgpu.io/v1"})"),
            (ShareConfig{ShareClass::kFixed, PriorityClass::kOffline}));
}

TEST(ShareConfig, EverythingWrongIsNamed) {
  const auto got = parse_share_config(
      R"({"apiVersion":"gpu.elasticgpu.io/v1","kind":"GpuConfig","shareClass":"turbo",
          "priorityClass":3,"memory":"4Gi"})");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kInvalidArgument);
  for (const char* part :
       {"kind: must be", "\"turbo\"", "fixed, burst or besteffort", "priorityClass: 3", "memory: unknown"})
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
}

TEST(ShareConfig, NoObject) {
  for (const char* text : {"", "[]", "null", "{", "[[[[[[[["}) EXPECT_FALSE(parse_share_config(text)) << text;
  EXPECT_FALSE(parse_share_config(std::string(11 * 1024, ' ')));
}

}  // namespace
}  // namespace carve::codec
