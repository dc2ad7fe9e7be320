#include "app/control/schedule/unschedulable_pods.h"

#include <algorithm>
#include <utility>

#include "codec/extender/extender.h"

namespace carve::control {

void UnschedulablePods::put(const std::string& uid, std::vector<std::string> nodes, Clock::Time now,
                            std::size_t asked) {
  auto names = std::make_shared<const std::vector<std::string>>(std::move(nodes));
  {
    const MutexLock lock(mutex_);
    const auto stored = notes_.find(uid);
    const bool in_a_row = stored != notes_.end() && now - stored->second.at <= kInARow;
    const auto since = in_a_row ? stored->second.since : now;
    notes_[uid] = {std::move(names), now, since, asked};
    if (notes_.size() > kMost)
      notes_.erase(std::min_element(notes_.begin(), notes_.end(),
                                    [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
  }
  changes_.pod(uid);
}

void UnschedulablePods::observe(const Owner& owner, const FitView& fit, Clock::Time now) {
  if (!fit.nodes.empty()) return forget(owner.uid);
  std::vector<std::string> names;
  for (const auto& node : fit.refused) {
    if (!node.final) names.emplace_back(node.node);
  }
  put(owner.uid, std::move(names), now, fit.refused.size());
}

Result<void> UnschedulablePods::put_report(std::string_view report, Clock::Time now) {
  CARVE_TRY(auto note, codec::parse_turned_away(report));
  put(note.uid, std::move(note.nodes), now);
  return {};
}

void UnschedulablePods::forget(const std::string& uid) {
  const MutexLock lock(mutex_);
  notes_.erase(uid);
}

std::optional<UnschedulablePods::Note> UnschedulablePods::find(const std::string& uid) const {
  const MutexLock lock(mutex_);
  const auto found = notes_.find(uid);
  return found == notes_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace carve::control
