#include "codec/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace carve::codec {
namespace {

TEST(Base64, GoesBothWays) {
  const std::string texts[] = {"", "M", "Ma", "Man", "Many", std::string("\0\xff\x80", 3)};
  for (const auto& text : texts) {
    EXPECT_EQ(decode_base64(encode_base64(text)), text);
  }
  EXPECT_EQ(encode_base64("M"), "TQ==");
  EXPECT_EQ(encode_base64("Ma"), "TWE=");
}

}  // namespace
}  // namespace carve::codec
