#include "app/dashboard/usage_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace carve::dashboard {

void UsageReader::add_quotas(codec::Usage* usage) const {
  if (quotas_) {
    const auto texts = quotas_();
    if (!texts) usage->quotas_error = texts.error().what;
    for (const auto& text : texts.value_or(std::vector<std::string>())) {
      auto quotas = codec::parse_card_quotas(text);
      if (!quotas) {
        usage->quotas_error = quotas.error().what;
        continue;
      }
      std::move(quotas->begin(), quotas->end(), std::back_inserter(usage->quotas));
    }
  }
  if (own_quotas_) {
    auto own = own_quotas_();
    std::move(own.begin(), own.end(), std::back_inserter(usage->quotas));
  }
}

void UsageReader::read(std::chrono::seconds since, const std::stop_token& stop) {
  HistoryQuery query;
  query.by = HistoryQuery::By::kNamespaces;
  query.since = since;
  codec::Usage usage;
  usage.since = since;
  const auto begin = clock_.now();
  const auto asked = ask_(
      query,
      [this](std::size_t agents) {
        const MutexLock lock(mutex_);
        reading_.agents = agents;
      },
      [&](const Result<HistoryAnswer>& answer) {
        ++usage.nodes;
        usage.silent += answer ? 0 : 1;
        for (const auto& line : answer.value_or(HistoryAnswer()).lines) usage.hours[line.key.name] += hours_of(line);
        const MutexLock lock(mutex_);
        ++reading_.answered;
      },
      stop);
  if (asked) add_quotas(&usage);
  const auto end = clock_.now();
  const MutexLock lock(mutex_);
  reading_.done = true;
  if (asked && !stop.stop_requested()) {
    if (kept_.size() >= kMostKept) kept_.clear();
    const auto span = std::max<Clock::Duration>(kKept, 10 * (end - begin));
    kept_[since] = {std::make_shared<const codec::Usage>(std::move(usage)), end + span};
  } else if (!asked) {
    reading_.error = asked.error();
  }
  changed_.notify_all();
}

void UsageReader::set_patience(std::chrono::milliseconds patience) {
  const MutexLock lock(mutex_);
  patience_ = patience;
}

Result<UsageReader::Shared> UsageReader::of(std::chrono::seconds since) {
  MutexLock lock(mutex_);
  const auto patient_until = std::chrono::steady_clock::now() + patience_;
  for (bool started = false;;) {
    const auto found = kept_.find(since);
    if (found != kept_.end() && clock_.now() < found->second.until) return found->second.usage;
    const bool ours = reading_.since == since;
    if (reading_.done && started && ours)
      return tl::unexpected(reading_.error.value_or(Error{Code::kUnavailable, "the program ends"}));
    if (reading_.done) {
      reading_ = {since, false, std::nullopt, 0, 0};
      started = true;
      thread_ = Thread("usage-read", [this, since](const std::stop_token& stop) { read(since, stop); });
    }
    started = started || reading_.since == since;
    if (changed_.wait_until(lock, patient_until) == std::cv_status::timeout && !reading_.done)
      return fail(Code::kUnavailable,
                  fmt::format("{} of {} agents have answered so far{}; ask again", reading_.answered, reading_.agents,
                              reading_.since == since ? "" : ", to another caller's question"));
  }
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
