#include "codec/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace carve::codec {
namespace {

using testing::HasSubstr;

TEST(ParseBytes, ReadsTheSuffixesOfKubernetes) {
  const std::vector<std::pair<std::string, std::uint64_t>> legal = {
      {"4Gi", 4294967296},
      {"4096Mi", 4294967296},
      {"4G", 4000000000},
      {"4294967296", 4294967296},
      {"1.5Gi", 1610612736},
      {"500M", 500000000},
      {"1", 1},
      {"1k", 1000},
      {"1Ki", 1024},
      {"3Ti", 3'298'534'883'328},
      {"1Pi", 1'125'899'906'842'624},
      {"1Ei", 1'152'921'504'606'846'976},
      {"2T", 2'000'000'000'000},
      {"1P", 1'000'000'000'000'000},
      {"1E", 1'000'000'000'000'000'000},
      {"007", 7},
      {".5Gi", 536870912},
      {"5.", 5},
      {"4e9", 4000000000},
      {"4E9", 4000000000},
      {"1e10", 10'000'000'000},
      {"2e12", 2'000'000'000'000},
      {"3e07", 30'000'000},
      {"1e18", 1'000'000'000'000'000'000},
      {"1E", 1000000000000000000},
      {"15Ei", 17293822569102704640ULL},
      {"18446744073709551615", 18446744073709551615ULL},
      {"0.3Gi", 322122548},  // rounded up, as in Kubernetes
      {"0.000000001", 1},
  };
  for (const auto& [text, bytes] : legal) {
    const auto parsed = parse_bytes("--memory", text);
    ASSERT_TRUE(parsed) << parsed.error().what;
    EXPECT_EQ(parsed->count(), bytes) << text;
  }
}

TEST(ParseBytes, RefusesOtherTextWithFieldValueUnitAndLegalValues) {
  const std::vector<std::pair<std::string, std::string>> illegal = {
      {"", "is empty"},
      {"-4Gi", "has a sign"},
      {"+4Gi", "has a sign"},
      {"Gi", "does not start with a number"},
      {".", "does not start with a number"},
      {"four", "does not start with a number"},
      {" 4Gi", "does not start with a number"},
      {"4GB", "has unit GB: write G without the B"},
      {"4GiB", "has unit GiB: write Gi without the B"},
      {"4g", "has unit g, which does not exist"},
      {"4gi", "has unit gi, which does not exist"},
      {"4t", "has unit t, which does not exist"},
      {"4K", "has unit K, which does not exist"},
      {"4K", "has unit K"},
      {"4B", "unknown unit"},
      {"4 Gi", "unknown unit"},
      {"400m", "thousandths of a byte"},
      {"50%", "is a percentage"},
      {"4Gi4", "unknown unit"},
      {"4e", "unknown unit"},
      {"4e-3", "unknown unit"},
      {"4e19", "unknown unit"},
      {"1.2.3", "unknown unit"},
      {"0x10", "unknown unit"},
      {"0", "is zero"},
      {"0.0Gi", "is zero"},
      {"1.0000000000000000001", "more than 18 decimals"},
      {std::string(65, '1'), "is too long"},
      {std::string("4\0Gi", 4), "unknown unit"},
  };
  for (const auto& [text, why] : illegal) {
    const auto parsed = parse_bytes("--memory", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().what, HasSubstr(why));
    EXPECT_THAT(parsed.error().what, HasSubstr("--memory: \""));
    EXPECT_THAT(parsed.error().what, HasSubstr("bytes"));
    EXPECT_THAT(parsed.error().what, HasSubstr("4Gi"));
  }
}

TEST(ParseBytes, RefusesAmountsThatAreTooLarge) {
  for (const std::string text : {"16Ei", "18446744073709551616", "99999999999999999999999", "20E",
                                 "18446744073709551615.5"}) {
    const auto parsed = parse_bytes("--memory", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kOutOfRange) << text;
    EXPECT_THAT(parsed.error().what, HasSubstr("more than 2^64 - 1 bytes"));
  }
}

RC_GTEST_PROP(ParseBytes, ReadsBackTheOutputOfToCanonical, ()) {
  const auto shift = *rc::gen::inRange(0, 64);
  const auto bytes = Bytes((*rc::gen::arbitrary<std::uint64_t>() >> shift) | 1);
  const auto parsed = parse_bytes("f", to_canonical(bytes));
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(*parsed == bytes);
}

RC_GTEST_PROP(ParseBytes, AcceptsOnlyTextThatEqualsItsBytes, (std::string text)) {
  const auto parsed = parse_bytes("f", text);
  if (parsed) {
    RC_ASSERT(parsed->count() > 0u);
    RC_ASSERT(parse_bytes("f", to_canonical(*parsed)).value() == *parsed);
  }
}

TEST(ParseMemory, AcceptsAPercentageOfTheCard) {
  EXPECT_EQ(parse_memory("memory", "50%").value(), MemoryAsk::of_percent(50));
  EXPECT_EQ(parse_memory("memory", "4Gi").value(), MemoryAsk::of(Bytes::gib(4)));
  EXPECT_EQ(parse_memory("memory", "1048576").value(), MemoryAsk::of(Bytes::mib(1)));
  EXPECT_EQ(parse_memory("memory", "512Ki").value(), MemoryAsk::of(Bytes(512 * 1024))) << "the text has a unit";
  for (const char* text : {"0.1", "4", "4.0", ".5", "4.", "100000", "1048575"}) {
    const auto parsed = parse_memory("memory", text);
    ASSERT_FALSE(parsed) << text << ": the unit is missing";
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().what.find(std::string("write the unit; legal: ") + text + "Gi"), std::string::npos)
        << parsed.error().what;
  }
  for (const std::string text : {"0%", "101%", "%", "1.5%", "-1%", "50 %"}) {
    const auto parsed = parse_memory("memory", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().what, HasSubstr("1 to 100 per cent of each card's memory")) << text;
  }
}

TEST(ParseCores, ALimitIsOneToAHundredHundredths) {
  EXPECT_EQ(parse_core_limit("limit", "1").value(), CoreShare(1));
  EXPECT_EQ(parse_core_limit("limit", "100").value(), CoreShare(100));
  EXPECT_FALSE(parse_core_limit("limit", "0"));
  EXPECT_FALSE(parse_core_limit("limit", "101"));
}

TEST(ParseCores, AcceptsSharesOfACardAndWholeCards) {
  EXPECT_EQ(parse_cores("cores", "30")->share, CoreShare(30));
  EXPECT_EQ(parse_cores("cores", "30%")->share, CoreShare(30));
  EXPECT_EQ(parse_cores("cores", "30")->whole_cards, 0u);
  EXPECT_EQ(parse_cores("cores", "100")->whole_cards, 1u);
  ASSERT_TRUE(parse_cores("cores", "100%"));
  EXPECT_EQ(parse_cores("cores", "100%")->whole_cards, 1u);
  EXPECT_EQ(parse_cores("cores", "200")->whole_cards, 2u);
  EXPECT_EQ(parse_cores("cores", "1600")->whole_cards, 16u);
  for (const std::string text : {"", "%", "0", "-1", "101", "150", "1700", "200%", "3.5", "abc",
                                 "99999999999999999999", "30 "}) {
    const auto parsed = parse_cores("cores", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().what, HasSubstr("1 to 100 hundredths of each card")) << text;
    EXPECT_THAT(parsed.error().what, HasSubstr("or 200, 300, … 1600 for whole cards")) << text;
  }
}

TEST(Quantity, TextsAreReadUpToSixtyFourCharacters) {
  const std::string zeros(62, '0');
  EXPECT_EQ(parse_bytes("f", zeros + "4k"), Bytes(4000));
  EXPECT_EQ(parse_amount("f", zeros + "4k", 1, 5000, "MiB"), 4000U);
  EXPECT_FALSE(parse_bytes("f", "0" + zeros + "4k"));
  EXPECT_FALSE(parse_amount("f", "0" + zeros + "4k", 1, 5000, "MiB"));
  EXPECT_EQ(parse_count("f", std::string(19, '0') + "4", 1, 5, "cards"), 4U);
  EXPECT_FALSE(parse_count("f", std::string(20, '0') + "4", 1, 5, "cards"));
}

TEST(Quantity, AQuotedTextIsTruncatedAndPrintable) {
  EXPECT_THAT(parse_bytes("f", std::string(65, 'x')).error().what, HasSubstr("\"" + std::string(64, 'x') + "…\""));
  EXPECT_THAT(parse_bytes("f", std::string(64, 'x')).error().what, HasSubstr("\"" + std::string(64, 'x') + "\""));
  EXPECT_THAT(parse_bytes("f", "x ~\x1f\x7f\"\xc3").error().what, HasSubstr("\"x ~????\""));
}

TEST(ParseCount, AcceptsWholeNumbersInItsRange) {
  EXPECT_EQ(parse_count("cards", "2", 1, 16, "cards").value(), 2u);
  for (const std::string text : {"", "0", "17", "-1", "1.", "2.0", "1e1", "18446744073709551616"}) {
    EXPECT_FALSE(parse_count("cards", text, 1, 16, "cards")) << text;
  }
}

TEST(ParseAmount, ReadsTheApiServersFormsOfANumber) {
  for (const auto& [text, count] : std::vector<std::pair<std::string, std::uint64_t>>{
           {"4000", 4000}, {"4k", 4000}, {"4Ki", 4096}, {"1.5k", 1500}, {"3e2", 300}, {"7", 7}}) {
    const auto parsed = parse_amount("a/b", text, 1, 5000, "MiB");
    ASSERT_TRUE(parsed) << parsed.error().what;
    EXPECT_EQ(*parsed, count) << text;
  }
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"10G", "a/b: \"10G\" is 10000000000 MiB, out of range; legal: 1 to 5000 MiB"},
           {"5500m", "\"5500m\" is not a whole number; legal: 1 to 5000 MiB"},
           {"5.5", "not a whole number"},
           {"1.0001k", "not a whole number"},
           {"4GB", "\"4GB\" is not a number of MiB"},
           {"99Ei", "out of range"},
           {"99999999999999999999", "out of range"},
           {"0k", "is 0 MiB, out of range"},
           {"", "is empty"},
           {"k", "not a whole number"},
           {"-1k", "not a whole number"}}) {
    const auto parsed = parse_amount("a/b", text, 1, 5000, "MiB");
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().what, HasSubstr(why));
  }
}

RC_GTEST_PROP(ParseAmount, NeverThrowsAndStaysInRange, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("0123456789.kMGTPEKimune+-%")));
  const auto parsed = parse_amount("a/b", text, 1, 5000, "MiB");
  if (parsed) RC_ASSERT(*parsed >= 1U && *parsed <= 5000U);
}

}  // namespace
}  // namespace carve::codec
