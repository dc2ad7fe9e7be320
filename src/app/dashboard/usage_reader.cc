#include "app/dashboard/usage_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace carve::dashboard {

Result<UsageReader::Shared> UsageReader::read(std::chrono::seconds since) const {
  HistoryQuery query;
  query.by = HistoryQuery::By::kNamespaces;
  query.since = since;
  CARVE_TRY(const auto histories, ask_(query));
  codec::Usage usage;
  usage.since = since;
  usage.silent = histories.silent;
  usage.nodes = histories.answers.size() + histories.silent;
  for (const auto& answer : histories.answers) {
    for (const auto& line : answer.lines) usage.hours[line.key.name] += hours_of(line);
  }
  if (quotas_) {
    const auto texts = quotas_();
    if (!texts) usage.quotas_error = texts.error().what;
    for (const auto& text : texts.value_or(std::vector<std::string>())) {
      auto quotas = codec::parse_card_quotas(text);
      if (!quotas) {
        usage.quotas_error = quotas.error().what;
        continue;
      }
      std::move(quotas->begin(), quotas->end(), std::back_inserter(usage.quotas));
    }
  }
  if (own_quotas_) {
    auto own = own_quotas_();
    std::move(own.begin(), own.end(), std::back_inserter(usage.quotas));
  }
  return std::make_shared<const codec::Usage>(std::move(usage));
}

Result<UsageReader::Shared> UsageReader::of(std::chrono::seconds since) {
  MutexLock lock(mutex_);
  while (reading_) read_.wait(lock);
  const auto found = kept_.find(since);
  if (found != kept_.end() && clock_.now() - found->second.at < kKept) return found->second.usage;
  reading_ = true;
  lock.unlock();
  auto usage = read(since);
  lock.lock();
  reading_ = false;
  read_.notify_all();
  if (!usage) return usage;
  if (kept_.size() >= kMostKept) kept_.clear();
  kept_[since] = {*usage, clock_.now()};
  return usage;
}

std::set<std::string> namespaces_in(const codec::Usage& usage) {
  std::set<std::string> names;
  for (const auto& [name, hours] : usage.hours) names.insert(name);
  for (const auto& quota : usage.quotas) names.insert(quota.namespace_name);
  names.erase("");
  return names;
}

codec::Usage seen_by(const Viewer& viewer, const codec::Usage& usage) {
  if (viewer.everything) return usage;
  codec::Usage seen = usage;
  std::erase_if(seen.hours, [&](const auto& one) { return !viewer.sees(one.first); });
  std::erase_if(seen.quotas, [&](const auto& one) { return !viewer.sees(one.namespace_name); });
  return seen;
}

}  // namespace carve::dashboard
