#include <gtest/gtest.h>

#include "codec/health/known_cards_text.h"
#include "codec/health/xid_policy_text.h"

namespace carve::codec {
namespace {

Result<XidPolicy> parse(std::string_view text) { return parse_xid_policy("p", text, built_in_xid_policy()); }

TEST(XidPolicyText, LinesChangeRowsAndTheRestStays) {
  const auto policy = parse(
      "# what we saw on our cards\n"
      "xid 109 ignore   # the vendor's plugin does so too\n"
      "\n"
      "xid 13,96-98 unhealthy heal-after=5m \"our own\"\r\n"
      "xid other reset\n");
  ASSERT_TRUE(policy) << policy.error().what;
  EXPECT_EQ(policy->row(109).action, XidAction::kIgnore);
  EXPECT_EQ(policy->row(109).meaning, "context switch timeout") << "the built-in words stay";
  EXPECT_EQ(policy->row(97).action, XidAction::kUnhealthy);
  EXPECT_EQ(policy->row(97).heal_after, std::chrono::minutes(5));
  EXPECT_EQ(policy->row(13).meaning, "our own");
  EXPECT_EQ(policy->row(999).action, XidAction::kReset);
  EXPECT_EQ(policy->row(79), built_in_xid_policy().row(79));
  EXPECT_EQ(*parse(""), built_in_xid_policy());
}

TEST(XidPolicyText, EveryWrongLineIsNamedWithWhatIsLegal) {
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
        "p:3: heal-after: means something for `unhealthy` only", "p:4: heal-after: \"2d\"", "1s to 24h", "p:5: ",
        "p:6: \"gpu\"", "p:7: codes: \"9-3\"", "p:8: meaning: a quote has no end", "p:9: codes: \"1000\"",
        "p:10: \"really\""})
    EXPECT_NE(what.find(part), std::string::npos) << part << " in " << what;
  EXPECT_EQ(what.find("p:11"), std::string::npos);
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

TEST(KnownCardsText, WhatIsBrokenIsRefused) {
  const std::string good = encode_known_cards(two_cards());
  for (std::size_t cut = 0; cut + 2 < good.size(); ++cut)
    EXPECT_FALSE(parse_known_cards(std::string_view(good).substr(0, cut))) << cut;
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(parse_known_cards(changed("\"version\":1", "\"version\":2")).error().code, Code::kUnimplemented);
  EXPECT_FALSE(parse_known_cards(changed("GPU-1", "GPU-0"))) << "twice";
  EXPECT_FALSE(parse_known_cards(changed("\"xid\":48", "\"xid\":0")));
  EXPECT_FALSE(parse_known_cards(changed("\"memory\":150323855360", "\"memory\":0")));
}

}  // namespace
}  // namespace carve::codec
