#include "core/cluster/quota_book.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve {
namespace {

void subtract(std::map<std::string, CardParts>* from, const std::string& model, CardParts parts) {
  const auto found = from->find(model);
  if (found == from->end()) return;
  found->second -= std::min(found->second, parts);
  if (found->second == 0) from->erase(found);
}

CardParts sum_of(const std::map<std::string, CardParts>& by_model, const Quota& quota) {
  CardParts sum = 0;
  for (const auto& [model, parts] : by_model) {
    if (model_matches(model, quota.model)) sum += parts;
  }
  return sum;
}

}  // namespace

void QuotaBook::set(Quotas quotas) {
  quotas_ = std::move(quotas);
  nodes_.clear();
  used_.clear();
  by_owner_.clear();
  kinds_.clear();
}

void QuotaBook::take_out(const OnNode& node) {
  for (const Held& held : node.held) {
    subtract(&used_[held.namespace_name], held.model, held.parts);
    const auto own = by_owner_.find(held.owner);
    if (own == by_owner_.end()) continue;
    subtract(&own->second, held.model, held.parts);
    if (own->second.empty()) by_owner_.erase(own);
  }
  for (const Card& card : node.kinds) {
    const auto found = kinds_.find({card.model, card.memory});
    if (found != kinds_.end() && --found->second.second == 0) kinds_.erase(found);
  }
}

void QuotaBook::put(const std::string& node, const NodeState* state, const NamespaceOf& namespace_of) {
  if (!any()) return;
  if (const auto before = nodes_.find(node); before != nodes_.end()) {
    take_out(before->second);
    nodes_.erase(before);
  }
  if (state == nullptr) return;
  OnNode& now = nodes_[node];
  std::set<Kind> kinds;
  for (const CardState& card : state->ledger.cards()) {
    if (kinds.emplace(card.card.model, card.card.memory).second) now.kinds.push_back(card.card);
    const Slice* const end = card.slices.data() + card.slices.size();
    for (const Slice* from = card.slices.data(); from != end;) {
      const Slice* to = std::find_if(from, end, [&](const Slice& slice) { return slice.owner != from->owner; });
      auto name = namespace_of(from->owner);
      if (quotas_.contains(name)) {
        const auto taken = parts_taken(holding_of(from, to), card.card);
        now.held.push_back({std::move(name), from->owner, card.card.model, taken});
      }
      from = to;
    }
  }
  for (const Held& held : now.held) {
    used_[held.namespace_name][held.model] += held.parts;
    by_owner_[held.owner][held.model] += held.parts;
  }
  for (const Card& card : now.kinds) {
    auto& [kind, nodes] = kinds_[{card.model, card.memory}];
    kind = card;
    ++nodes;
  }
}

CardParts QuotaBook::used_of(const std::string& namespace_name, const Quota& quota) const {
  const auto found = used_.find(namespace_name);
  return found == used_.end() ? 0 : sum_of(found->second, quota);
}

CardParts QuotaBook::own_of(const Owner& owner, const Quota& quota) const {
  const auto found = by_owner_.find(owner);
  return found == by_owner_.end() ? 0 : sum_of(found->second, quota);
}

std::vector<BarredModel> QuotaBook::barred(std::string_view namespace_name, const Owner& owner,
                                           const std::vector<PartRequest>& parts) const {
  std::vector<BarredModel> found;
  const auto of_namespace = quotas_.find(namespace_name);
  if (of_namespace == quotas_.end()) return found;
  for (const Quota& quota : of_namespace->second) {
    // A caller of the plain port may name the UID of another namespace's pod.
    const CardParts all = used_of(of_namespace->first, quota);
    const CardParts used = all - std::min(all, own_of(owner, quota));
    for (const auto& [kind, one] : kinds_) {
      const std::string& model = kind.first;
      if (!model_matches(model, quota.model)) continue;
      const CardParts needed = parts_taken(parts, one.first);
      if (needed == 0 || used + needed <= quota.limit) continue;
      const bool known = std::any_of(found.begin(), found.end(),
                                     [&](const BarredModel& barred) { return barred.model == model; });
      if (known) continue;
      found.push_back({model, fmt::format("quota of namespace {}: {} of {} {} in use, the pod requests {}",
                                          of_namespace->first, to_human_cards(used), to_human_cards(quota.limit),
                                          quota.model.empty() ? "cards" : quota.model + " cards",
                                          to_human_cards(needed))});
    }
  }
  return found;
}

std::vector<PartRequest> QuotaBook::within(std::string_view namespace_name, const Owner& owner,
                                           std::vector<PartRequest> parts) const {
  const auto models = barred(namespace_name, owner, parts);
  return without(models, std::move(parts));
}

std::vector<QuotaUse> QuotaBook::uses() const {
  std::vector<QuotaUse> all;
  for (const auto& [name, quotas] : quotas_) {
    for (const Quota& quota : quotas) all.push_back({name, quota, used_of(name, quota)});
  }
  return all;
}

std::vector<PartRequest> without(const std::vector<BarredModel>& barred, std::vector<PartRequest> parts) {
  if (barred.empty()) return parts;
  for (PartRequest& part : parts) part.request.constraints.barred = barred;
  return parts;
}

}  // namespace carve
