#include "core/model/share_policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace carve {
namespace {

using Kind = SharePolicy::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 14> kPolicyWords = {{{"fixed", Kind::kFixed},
                                                                             {"fixed-share", Kind::kFixed},
                                                                             {"fs", Kind::kFixed},
                                                                             {"3", Kind::kFixed},
                                                                             {"burst", Kind::kBurst},
                                                                             {"burst-share", Kind::kBurst},
                                                                             {"bs", Kind::kBurst},
                                                                             {"2", Kind::kBurst},
                                                                             {"4", Kind::kBurst},
                                                                             {"equal", Kind::kEqual},
                                                                             {"best-effort", Kind::kEqual},
                                                                             {"be", Kind::kEqual},
                                                                             {"1", Kind::kEqual},
                                                                             {"5", Kind::kEqual}}};

/// The N of even-N and 0-N; nullopt: not such a word.
std::optional<std::uint32_t> parts_in(std::string_view word) {
  for (const std::string_view start : {"even-", "0-"}) {
    if (!word.starts_with(start)) continue;
    word.remove_prefix(start.size());
    std::uint32_t parts = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), parts);
    if (error != std::errc() || end != word.data() + word.size() || parts < 1 || parts > 100) return std::nullopt;
    return parts;
  }
  return std::nullopt;
}

}  // namespace

std::optional<SharePolicy> share_policy_from(std::string_view word) {
  for (const auto& [candidate, kind] : kPolicyWords) {
    if (candidate == word) return SharePolicy{kind, 0};
  }
  if (const auto parts = parts_in(word)) return SharePolicy{Kind::kEven, *parts};
  return std::nullopt;
}

std::string to_string(const SharePolicy& policy) {
  if (policy.kind == Kind::kEven) return "even-" + std::to_string(policy.parts);
  const auto found = std::find_if(kPolicyWords.begin(), kPolicyWords.end(),
                                  [&](const auto& row) { return row.second == policy.kind; });
  return found == kPolicyWords.end() ? "unknown" : std::string(found->first);
}

SharePolicy SharePolicies::of(const Slice& slice) const {
  if (const auto found = cards.find(slice.card); found != cards.end()) return found->second;
  if (node) return *node;
  const auto found = dialects.find(slice.dialect);
  return found == dialects.end() ? SharePolicy{} : found->second;
}

ShareDivision::ShareDivision(const SharePolicies& policies, const std::vector<Slice>& all) : policies_(policies) {
  for (const Slice& slice : all) {
    if (slice.share != ShareClass::kNode || policies_.of(slice).kind != Kind::kEqual) continue;
    Sum& sum = equal_[slice.card];
    ++sum.slices;
    sum.hundredths += slice.compute.hundredths();
  }
}

Slice ShareDivision::enforced(Slice slice) const {
  if (slice.share != ShareClass::kNode) return slice;
  const SharePolicy policy = policies_.of(slice);
  slice.share = policy.kind == Kind::kFixed || policy.kind == Kind::kEven ? ShareClass::kFixed : ShareClass::kBurst;
  if (policy.kind == Kind::kEven) slice.compute = CoreShare(100 / policy.parts);
  if (policy.kind != Kind::kEqual) return slice;
  // The slices keep together what each has reserved, so slices of other classes on the card lose nothing.
  if (const auto found = equal_.find(slice.card); found != equal_.end() && found->second.slices != 0) {
    slice.compute = CoreShare(std::max(found->second.hundredths / found->second.slices, 1U));
  }
  return slice;
}

}  // namespace carve
