#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "codec/health/known_cards_text.h"
#include "codec/health/xid_policy_text.h"

namespace carve::codec {
namespace {

Result<XidPolicy> parse(std::string_view text) { return parse_xid_policy("p", text, built_in_xid_policy()); }

TEST(XidPolicyText, LinesReplaceRowsAndTheOthersStay) {
  const auto policy = parse(
      "# what we saw on our cards\n"
      "xid 109 ignore   # the vendor's plugin does so too\n"
      "\n"
      "xid 13,96-98 unhealthy heal-after=5m \"our own\"\r\n"
      "xid other reset\n");
  ASSERT_TRUE(policy) << policy.error().what;
  EXPECT_EQ(policy->row(109).action, XidAction::kIgnore);
  EXPECT_EQ(policy->row(109).meaning, "context switch timeout") << "the built-in meaning stays";
  EXPECT_EQ(policy->row(97).action, XidAction::kUnhealthy);
  EXPECT_EQ(policy->row(97).heal_after, std::chrono::minutes(5));
  EXPECT_EQ(policy->row(13).meaning, "our own");
  EXPECT_EQ(policy->row(999).action, XidAction::kReset);
  EXPECT_EQ(policy->row(79), built_in_xid_policy().row(79));
  EXPECT_EQ(*parse(""), built_in_xid_policy());
}

TEST(XidPolicyText, AllFaultyLinesAreReportedWithLegalValues) {
  const auto policy = parse(
      "xid 0 ignore\n"
      "xid 13 harmless\n"
      "xid 13 reset heal-after=5m\n"
      "xid 13 unhealthy heal-after=2d\n"
      "xid 13\n"
      "gpu 13 ignore\n"
      "xid 9-3 ignore\n"
      "xid 13 ignore \"no end\n"
      "xid 1,1000 ignore\n"
      "xid 13 ignore really\n"
      "xid 14 ignore\n");
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.error().code, Code::kInvalidArgument);
  const std::string& what = policy.error().what;
  for (const char* part :
       {"p:1: codes: \"0\"", "numbers from 1 to 999", "p:2: action: \"harmless\"", "application, unhealthy, reset and",
        "p:3: heal-after: applies only to `unhealthy`", "p:4: heal-after: \"2d\"", "1s to 24h", "p:5: ",
        "p:6: \"gpu\"", "p:7: codes: \"9-3\"", "p:8: meaning: the closing quote is missing", "p:9: codes: \"1000\"",
        "p:10: \"really\""})
    EXPECT_NE(what.find(part), std::string::npos) << part << " in " << what;
  EXPECT_EQ(what.find("p:11"), std::string::npos);
}

TEST(XidPolicyText, IsReadUpToItsLimits) {
  const auto fits = [](const std::string& text) { return parse(text).has_value(); };
  const std::string line = "xid 1 ignore\n";
  const std::size_t most = 256 * 1024;
  EXPECT_TRUE(fits(line + std::string(most - line.size(), '\n')));
  EXPECT_FALSE(fits(line + std::string(most - line.size() + 1, '\n')));
  EXPECT_TRUE(fits("xid 1 ignore \"" + std::string(100, 'w') + "\""));
  EXPECT_FALSE(fits("xid 1 ignore \"" + std::string(101, 'w') + "\""));
  EXPECT_TRUE(fits("xid 1 ignore \" ~\"")) << "the first and the last printable character";
  for (const std::string meaning : {"", "\x1f", "\x7f", "\xc3\xa9"})
    EXPECT_FALSE(fits("xid 1 ignore \"" + meaning + "\"")) << meaning;
  for (const std::string codes : {"1", "999", "1-999", "5-5", "1,2,3-4"})
    EXPECT_TRUE(fits("xid " + codes + " ignore")) << codes;
  for (const std::string codes :
       {"0", "1000", "1-1000", "0-1", "6-5", "1,", ",1", "1-", "-1", "a", "0000000001", "1-2-3"})
    EXPECT_FALSE(fits("xid " + codes + " ignore")) << codes;
  const auto healed = [](const std::string& after) { return parse("xid 13 unhealthy heal-after=" + after); };
  for (const auto& [after, seconds] : {std::pair<std::string, int>{"1s", 1},
                                       {"86400s", 86400},
                                       {"1m", 60},
                                       {"1440m", 86400},
                                       {"1h", 3600},
                                       {"24h", 86400}})
    EXPECT_EQ(healed(after)->row(13).heal_after, std::chrono::seconds(seconds)) << after;
  for (const std::string after : {"", "s", "0s", "86401s", "1441m", "25h", "1", "1d", "-1s"})
    EXPECT_FALSE(healed(after)) << after;
}

TEST(XidPolicyText, TwentyFaultsAreListedAndTheRestCounted) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "nonsense\n";
  EXPECT_EQ(parse(text).error().what.find(" more"), std::string::npos);
  EXPECT_NE(parse(text).error().what.find("p:20: "), std::string::npos);
  text += "nonsense\nnonsense";
  EXPECT_NE(parse(text).error().what.find("\n  and 2 more"), std::string::npos);
  EXPECT_EQ(parse(text).error().what.find("p:21: "), std::string::npos);
}

KnownCards two_cards() {
  KnownCards known;
  known.boot_id = "b-1";
  known.driver_version = "580.1";
  known.cuda_version = "13.0";
  known.cuda_file = "/d/libcuda.so.1";
  for (int i = 0; i < 2; ++i) {
    KnownCard card;
    card.card.id = CardId("GPU-" + std::to_string(i));
    card.card.vendor = "nvidia";
    card.card.model = "NVIDIA \"H200\"";
    card.card.memory = Bytes::gib(140);
    card.card.minor = i;
    card.card.pcie_root = "0000:17";
    card.card.architecture = "Hopper";
    card.card.compute_capability = "9.0";
    card.pci_bus_id = "0000:0" + std::to_string(i) + ":00.0";
    known.cards.push_back(card);
  }
  known.cards[1].held = HeldXid{48};
  return known;
}

TEST(KnownCardsText, IsReadBackAsWritten) {
  const auto again = parse_known_cards(encode_known_cards(two_cards()));
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ(*again, two_cards());
}

TEST(KnownCardsText, FaultyTextIsRefused) {
  const std::string good = encode_known_cards(two_cards());
  for (std::size_t cut = 0; cut + 2 < good.size(); ++cut)
    EXPECT_FALSE(parse_known_cards(std::string_view(good).substr(0, cut))) << cut;
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(parse_known_cards(changed("\"version\":1", "\"version\":2")).error().code, Code::kUnimplemented);
  EXPECT_FALSE(parse_known_cards(changed("GPU-1", "GPU-0"))) << "the card is listed twice";
  EXPECT_FALSE(parse_known_cards(changed("\"xid\":48", "\"xid\":0")));
  EXPECT_FALSE(parse_known_cards(changed("\"memory\":150323855360", "\"memory\":0")));
}

TEST(KnownCardsText, NumbersAndTextsAreReadUpToTheirLimits) {
  const auto read_back = [](const std::function<void(KnownCards&)>& change) {
    auto known = two_cards();
    change(known);
    const auto again = parse_known_cards(encode_known_cards(known));
    return again && *again == known;
  };
  EXPECT_TRUE(read_back([](KnownCards& k) { k.boot_id = std::string(1024, 'b'); }));
  EXPECT_FALSE(read_back([](KnownCards& k) { k.boot_id = std::string(1025, 'b'); }));
  for (const int numa : {-1, 1024}) EXPECT_TRUE(read_back([&](KnownCards& k) { k.cards[0].card.numa_node = numa; }));
  for (const int numa : {-2, 1025}) EXPECT_FALSE(read_back([&](KnownCards& k) { k.cards[0].card.numa_node = numa; }));
  for (const int minor : {-1, 1 << 20}) EXPECT_TRUE(read_back([&](KnownCards& k) { k.cards[0].card.minor = minor; }));
  for (const int minor : {-2, (1 << 20) + 1})
    EXPECT_FALSE(read_back([&](KnownCards& k) { k.cards[0].card.minor = minor; }));
  for (const std::uint32_t xid : {1U, kMostXid})
    EXPECT_TRUE(read_back([&](KnownCards& k) { k.cards[0].held = HeldXid{xid}; }));
  EXPECT_FALSE(read_back([](KnownCards& k) { k.cards[0].held = HeldXid{kMostXid + 1}; }));
  EXPECT_TRUE(read_back([](KnownCards& k) { k.cards[0].card.memory = Bytes(1); }));
  EXPECT_FALSE(read_back([](KnownCards& k) { k.cards[0].card.id = CardId(); }));
  const auto many = [](std::size_t count) {
    return [count](KnownCards& known) {
      known.cards.resize(count, known.cards[0]);
      for (std::size_t i = 0; i < count; ++i) known.cards[i].card.id = CardId("GPU-" + std::to_string(i));
    };
  };
  EXPECT_TRUE(read_back(many(kMaxKnownCards)));
  EXPECT_FALSE(read_back(many(kMaxKnownCards + 1)));
}

TEST(KnownCardsText, IsReadUpToEightLevelsDeep) {
  const auto reads = [](std::size_t depth) {
    std::string text = encode_known_cards(two_cards());
    text.insert(1, R"("x":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + ",");
    return parse_known_cards(text).has_value();
  };
  EXPECT_TRUE(reads(8));
  EXPECT_FALSE(reads(9));
}

TEST(KnownCardsText, EveryMemberIsRequired) {
  const std::string good = encode_known_cards(two_cards());
  ASSERT_TRUE(parse_known_cards(good));
  for (const std::string member : {"version", "boot", "driver", "cuda", "files", "nvml", "cards", "uuid", "vendor",
                                   "model", "memory", "numa", "minor", "pcieRoot", "architecture",
                                   "computeCapability", "bus"}) {
    std::string text = good;
    const std::string name = "\"" + member + "\"";
    ASSERT_NE(text.find(name), std::string::npos) << member;
    text.replace(text.find(name), name.size(), "\"x\"");
    EXPECT_FALSE(parse_known_cards(text)) << member;
  }
}

TEST(XidPolicyText, AWordIsQuotedUpToFortyPrintableCharacters) {
  const auto count = [](const std::string& text) {
    const std::string what = parse(text).error().what;
    return std::count(what.begin(), what.end(), 'z');
  };
  EXPECT_EQ(count(std::string(50, 'z') + " 1 ignore"), 40);
  EXPECT_EQ(count("xid 1 " + std::string(50, 'z')), 40);
  EXPECT_NE(parse("xid 1 a\x1f\x7f~").error().what.find("\"a?\?~\""), std::string::npos);
}

}  // namespace
}  // namespace carve::codec
