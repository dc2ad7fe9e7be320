#include "core/history/history.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace carve {
namespace {

constexpr std::pair<HistoryQuery::By, std::string_view> kBy[] = {{HistoryQuery::By::kCards, "cards"},
                                                                 {HistoryQuery::By::kSlices, "slices"},
                                                                 {HistoryQuery::By::kNamespaces, "namespaces"}};

std::optional<double> mean(double sum, double seconds) {
  return seconds > 0 ? std::optional(sum / seconds) : std::nullopt;
}

Bytes whole_bytes(double count) { return Bytes(static_cast<std::uint64_t>(std::llround(std::max(0.0, count)))); }

std::optional<std::uint32_t> whole(const std::optional<double>& value) {
  return value ? std::optional(static_cast<std::uint32_t>(std::lround(*value))) : std::nullopt;
}

bool wanted(const HistoryQuery& query, const HistoryKey& key) {
  if (!key.card.starts_with(query.card)) return false;
  if (!query.slice.empty() && key.slice != query.slice) return false;
  if (!query.name.empty() && key.name != query.name && !key.name.starts_with(query.name + "/")) return false;
  if (!query.slice.empty() || !query.name.empty()) return !key.of_card();
  return key.of_card() == (query.by == HistoryQuery::By::kCards);
}

/// Adds a slice's sample to its namespace's: the sums of the parts that are held at the same time.
void add_to(HistorySample* sum, const HistorySample& one) {
  sum->seconds = std::max(sum->seconds, one.seconds);
  const double part = sum->seconds == 0 ? 0 : static_cast<double>(one.seconds) / sum->seconds;
  sum->granted += whole_bytes(static_cast<double>(one.granted.count()) * part);
  sum->cores_granted += one.cores_granted * part;
  if (one.used) sum->used = sum->used.value_or(Bytes()) + whole_bytes(static_cast<double>(one.used->count()) * part);
  if (one.cores_delivered) sum->cores_delivered = sum->cores_delivered.value_or(0) + *one.cores_delivered * part;
}

/// The frame with one sample per namespace. A slice that was observed for a part of the interval counts as this part.
HistoryFrame by_namespace(const HistoryFrame& frame, const HistoryQuery& query) {
  HistoryFrame all;
  all.unix_seconds = frame.unix_seconds;
  std::uint32_t longest = 0;
  for (const auto& one : frame.samples) longest = std::max(longest, one.seconds);
  std::map<std::string, HistorySample> sums;
  for (const auto& one : frame.samples) {
    if (one.key.of_card() || !wanted(query, one.key)) continue;
    const auto name = namespace_in(one.key.name);
    auto& sum = sums[name];
    sum.key.name = name;
    sum.seconds = longest;
    add_to(&sum, one);
  }
  for (auto& [name, sum] : sums) all.samples.push_back(std::move(sum));
  return all;
}

}  // namespace

std::string_view to_string(HistoryQuery::By by) {
  for (const auto& [value, word] : kBy) {
    if (value == by) return word;
  }
  return {};
}

std::optional<HistoryQuery::By> history_by_from(std::string_view word) {
  for (const auto& [value, name] : kBy) {
    if (name == word) return value;
  }
  return std::nullopt;
}

std::string namespace_in(const std::string& name) {
  const auto first = name.find('/');
  return first == std::string::npos || name.find('/', first + 1) == std::string::npos ? std::string()
                                                                                      : name.substr(0, first);
}

void HistoryRollup::add(const HistoryFrame& frame) {
  for (const auto& one : frame.samples) {
    const double seconds = one.seconds;
    if (seconds <= 0) continue;
    Sum& sum = sums_[one.key];
    sum.seconds += seconds;
    sum.granted += static_cast<double>(one.granted.count()) * seconds;
    sum.cores += one.cores_granted * seconds;
    const auto add = [seconds](const auto& value, double* total, double* time) {
      if (!value) return;
      *total += static_cast<double>(*value) * seconds;
      *time += seconds;
    };
    add(one.used ? std::optional(static_cast<double>(one.used->count())) : std::nullopt, &sum.used, &sum.used_seconds);
    add(one.cores_delivered, &sum.delivered, &sum.delivered_seconds);
    add(one.temperature, &sum.temperature, &sum.temperature_seconds);
    add(one.power, &sum.power, &sum.power_seconds);
  }
}

HistoryFrame HistoryRollup::take(std::int64_t unix_seconds) {
  HistoryFrame frame;
  frame.unix_seconds = unix_seconds;
  for (const auto& [key, sum] : sums_) {
    HistorySample one;
    one.key = key;
    one.seconds = static_cast<std::uint32_t>(sum.seconds);
    one.granted = whole_bytes(sum.granted / sum.seconds);
    one.cores_granted = sum.cores / sum.seconds;
    if (const auto used = mean(sum.used, sum.used_seconds)) one.used = whole_bytes(*used);
    one.cores_delivered = mean(sum.delivered, sum.delivered_seconds);
    one.temperature = whole(mean(sum.temperature, sum.temperature_seconds));
    one.power = whole(mean(sum.power, sum.power_seconds));
    frame.samples.push_back(std::move(one));
  }
  sums_.clear();
  return frame;
}

bool wants_fine(const HistoryQuery& query) { return query.since <= kHistoryFineKept; }

HistoryReader::HistoryReader(const HistoryQuery& query, std::int64_t now) : query_(query) {
  const std::int64_t tier = (wants_fine(query) ? kHistoryFine : kHistoryCoarse).count();
  const std::int64_t since = std::max<std::int64_t>(query.since.count(), tier);
  const std::int64_t points = std::clamp<std::int64_t>(query.points, 1, kHistoryMostPoints);
  const std::int64_t step = std::max(tier, ((since + points - 1) / points + tier - 1) / tier * tier);
  answer_.step_seconds = static_cast<std::uint32_t>(step);
  // The intervals end at multiples of the step, so that two answers have the same ones.
  const std::int64_t last = (now + step - 1) / step * step;
  answer_.intervals = static_cast<std::size_t>((since + step - 1) / step);
  answer_.first_unix_seconds = last - static_cast<std::int64_t>(answer_.intervals - 1) * step;
}

void HistoryReader::add(const HistoryFrame& frame) {
  const std::int64_t step = answer_.step_seconds;
  const std::int64_t after = frame.unix_seconds - (answer_.first_unix_seconds - step);  // the first interval's begin
  if (after <= 0 || after > static_cast<std::int64_t>(answer_.intervals) * step) return;
  const auto at = static_cast<std::size_t>((after + step - 1) / step - 1);
  if (at != at_) finish_interval();
  at_ = at;
  if (query_.by == HistoryQuery::By::kNamespaces) {
    rollup_.add(by_namespace(frame, query_));
    return;
  }
  HistoryFrame kept;
  for (const auto& one : frame.samples) {
    if (wanted(query_, one.key)) kept.samples.push_back(one);
  }
  rollup_.add(kept);
}

void HistoryReader::finish_interval() {
  for (auto& sample : rollup_.take(0).samples) {
    auto& line = lines_[sample.key];
    if (line.values.empty()) {
      line.key = sample.key;
      line.values.resize(answer_.intervals);
    }
    sample.key = {};  // the line has it
    line.values[at_] = std::move(sample);
  }
}

HistoryAnswer HistoryReader::take() {
  finish_interval();
  for (auto& [key, line] : lines_) answer_.lines.push_back(std::move(line));
  lines_.clear();
  return std::move(answer_);
}

UsageHours& UsageHours::operator+=(const UsageHours& more) {
  card_hours_promised += more.card_hours_promised;
  card_hours_delivered += more.card_hours_delivered;
  gib_hours_held += more.gib_hours_held;
  gib_hours_used += more.gib_hours_used;
  return *this;
}

UsageHours hours_of(const HistoryLine& line) {
  constexpr double kHour = 3600;
  const auto gib = [](Bytes bytes) {
    return static_cast<double>(bytes.count()) / static_cast<double>(Bytes::gib(1).count());
  };
  UsageHours sum;
  for (const auto& value : line.values) {
    if (!value) continue;
    const double hours = value->seconds / kHour;
    sum += {value->cores_granted / 100 * hours, value->cores_delivered.value_or(0) / 100 * hours,
            gib(value->granted) * hours, gib(value->used.value_or(Bytes())) * hours};
  }
  return sum;
}

}  // namespace carve
