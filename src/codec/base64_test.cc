#include "codec/base64.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace carve::codec {
namespace {

TEST(Base64, EncodesAndDecodes) {
  const std::string texts[] = {"", "M", "Ma", "Man", "Many", std::string("\0\xff\x80", 3)};
  for (const auto& text : texts) {
    EXPECT_EQ(decode_base64(encode_base64(text)), text);
  }
  EXPECT_EQ(encode_base64("M"), "TQ==");
  EXPECT_EQ(encode_base64("Ma"), "TWE=");
}

TEST(Base64, EveryCharacterOfTheAlphabetHasItsValue) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (unsigned i = 0; i < 64; i += 4) {
    const unsigned group = i << 18U | (i + 1) << 12U | (i + 2) << 6U | (i + 3);
    for (const unsigned shift : {16U, 8U, 0U}) bytes += static_cast<char>(group >> shift & 255U);
  }
  EXPECT_EQ(encode_base64(bytes), alphabet);
  EXPECT_EQ(decode_base64(alphabet), bytes);
}

TEST(Base64, BlanksAreSkippedAndOtherCharactersAreRefused) {
  EXPECT_EQ(decode_base64(" TWF\r\n\tu\n"), "Man");
  for (const std::string& text : std::vector<std::string>{"T",
                                                          "TW",
                                                          "TWE",
                                                          "TWFu=",
                                                          "T===",
                                                          "====",
                                                          "TQ=Q",
                                                          "=TQ=",
                                                          "TQ==TQ==",
                                                          "TWF-",
                                                          "TWF_",
                                                          "TW@u",
                                                          "TW[u",
                                                          "TW`u",
                                                          "TW{u",
                                                          "TW:u",
                                                          "TW.u",
                                                          {"TW\0u", 4}})
    EXPECT_FALSE(decode_base64(text)) << text;
}

}  // namespace
}  // namespace carve::codec
