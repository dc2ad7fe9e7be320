#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/slice.h"

namespace carve {

/// How the compute of a card is divided among its slices of class ShareClass::kNode.
struct SharePolicy {
  enum class Kind : std::uint8_t {
    kFixed,  // each slice its own compute, even on an idle card
    kBurst,  // each slice its own compute, and idle compute in proportion
    kEqual,  // equal parts for busy slices, and all of an idle card
    kEven,   // one of `parts` equal parts for each slice, even on an idle card
  };
  Kind kind = Kind::kBurst;
  std::uint32_t parts = 0;  // of kEven: 1 to 100
  friend bool operator==(const SharePolicy&, const SharePolicy&) = default;
};

/// fixed, burst, equal or even-N; qGPU's words and cGPU's numbers for the same: fixed-share, fs, 3; burst-share, bs, 2,
/// 4; best-effort, be, 1, 5; 0-N. nullopt for any other word.
///   source  spec: systems.md R6 and R7
[[nodiscard]] std::optional<SharePolicy> share_policy_from(std::string_view word);
/// fixed, burst, equal or even-N.
[[nodiscard]] std::string to_string(const SharePolicy& policy);
inline constexpr std::string_view kSharePolicyWords =
    "fixed (fixed-share, fs, 3), burst (burst-share, bs, 2, 4), equal (best-effort, be, 1, 5) or even-N (0-N) with N "
    "from 1 to 100";

/// The policies of one node. The most specific one applies: that of the card, else of the node, else of the slice's
/// dialect, else burst.
struct SharePolicies {
  std::map<CardId, SharePolicy> cards = {};
  std::optional<SharePolicy> node = std::nullopt;
  std::map<std::string, SharePolicy> dialects = {};
  [[nodiscard]] SharePolicy of(const Slice& slice) const;
  friend bool operator==(const SharePolicies&, const SharePolicies&) = default;
};

/// Turns class ShareClass::kNode into what the arbiter enforces.
class ShareDivision {
 public:
  /// `all`: the slices of the node. Cost: O(all).
  ShareDivision(const SharePolicies& policies, const std::vector<Slice>& all);
  /// The slice with one of the other classes and the compute that the arbiter enforces. A slice of another class is
  /// returned unchanged.
  [[nodiscard]] Slice enforced(Slice slice) const;

 private:
  struct Sum {
    std::uint32_t slices = 0;
    std::uint32_t hundredths = 0;
  };
  const SharePolicies& policies_;
  std::map<CardId, Sum> equal_;  // of the slices with policy kEqual
};

}  // namespace carve
