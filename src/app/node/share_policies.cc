#include "app/node/share_policies.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "codec/node/card_statements.h"

namespace carve::node {
namespace {

void refuse_policy(std::string_view where, std::string_view value, std::string* refused) {
  *refused += fmt::format("{}{}: \"{}\" is not a policy; legal are {}", refused->empty() ? "" : "; ", where,
                          value.substr(0, 64), kSharePolicyWords);
}

void read_cards(std::string_view text, const std::vector<Card>& cards, StatedSharePolicies* stated) {
  for (const auto& [name, word] : codec::card_statements(text)) {
    const auto policy = share_policy_from(word);
    const Card* card = nullptr;
    for (std::size_t index = 0; index < cards.size(); ++index) {
      if (codec::is_card_called(name, cards[index].id, index)) card = &cards[index];
    }
    if (!policy) {
      refuse_policy(fmt::format("annotation {}, card {}", kCardSharePolicies, name.substr(0, 64)), word,
                    &stated->refused);
    } else if (card == nullptr) {
      stated->refused +=
          fmt::format("{}annotation {}: \"{}\" is neither the UUID nor the index (0 to {}) of a card here",
                      stated->refused.empty() ? "" : "; ", kCardSharePolicies, name.substr(0, 64),
                      cards.empty() ? 0 : cards.size() - 1);
    } else {
      stated->policies.cards[card->id] = *policy;
    }
  }
}

}  // namespace

StatedSharePolicies share_policies_on(const codec::NodeObject& node, const std::vector<Card>& cards,
                                      const SharePolicies& by_default) {
  StatedSharePolicies stated{by_default, {}};
  const auto label = [&](std::string_view key) -> std::optional<SharePolicy> {
    const auto found = node.labels.find(std::string(key));
    if (found == node.labels.end()) return std::nullopt;
    const auto policy = share_policy_from(found->second);
    if (!policy) refuse_policy(fmt::format("label {}", key), found->second, &stated.refused);
    return policy;
  };
  if (const auto policy = label(kSharePolicy)) stated.policies.node = policy;
  if (const auto policy = label(codec::kQgpuPolicy)) stated.policies.dialects["qgpu"] = *policy;
  const auto single = node.annotations.find(std::string(kCardSharePolicies));
  if (single != node.annotations.end() && !cards.empty()) read_cards(single->second, cards, &stated);
  return stated;
}

std::string describe(const SharePolicies& policies) {
  std::string text;
  const auto add = [&](std::string_view separator, const std::string& what, const SharePolicy& policy) {
    text += fmt::format("{}{} {}", text.empty() ? "" : separator, what, to_string(policy));
  };
  for (const auto& [dialect, policy] : policies.dialects) add(", ", dialect, policy);
  if (policies.node) add("; ", "node", *policies.node);
  for (const auto& [card, policy] : policies.cards) add("; ", card.str(), policy);
  return text;
}

}  // namespace carve::node
