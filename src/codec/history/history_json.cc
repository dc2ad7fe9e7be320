#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "codec/history/history_segment.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostIntervals = kHistoryMostPoints + 1;

using Values = std::vector<std::optional<HistorySample>>;

/// One array: `of` makes the value of an interval that has one.
template <class Of>
json::array column(const Values& values, const Of& of) {
  json::array array;
  array.reserve(values.size());
  for (const auto& value : values) array.push_back(value ? json::value(of(*value)) : json::value(nullptr));
  return array;
}

json::value or_null(const std::optional<Bytes>& value) { return value ? json::value(value->count()) : nullptr; }
json::value or_null(const std::optional<std::uint32_t>& value) { return value ? json::value(*value) : nullptr; }
json::value rounded(double value) { return std::round(value * 10) / 10; }

constexpr double kLargest = 1ULL << 50U;

/// The number, from 0 to `most`; a larger one is `most`. nullopt: not a number, or negative.
std::optional<double> number(const json::value* value, double most) {
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const auto read = value->to_number<double>();
  return read >= 0 ? std::optional(std::min(read, most)) : std::nullopt;
}

std::optional<double> number(const json::array* array, std::size_t at, double most = kLargest) {
  return array == nullptr || at >= array->size() ? std::nullopt : number(&(*array)[at], most);
}

std::optional<std::uint32_t> count(const json::array* array, std::size_t at) {
  const auto value = number(array, at, UINT32_MAX);
  return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
}

const json::array* array_in(const json::value& value, std::string_view key) {
  const auto* found = json_read::member(value, key);
  return found == nullptr ? nullptr : found->if_array();
}

std::string text_in(const json::value& value, std::string_view key) {
  const auto* found = json_read::member(value, key);
  return found != nullptr && found->is_string() ? std::string(found->as_string()) : std::string();
}

}  // namespace

namespace {

json::object value_of(const HistoryAnswer& answer) {
  json::array times;
  for (std::size_t at = 0; at < answer.intervals; ++at)
    times.emplace_back(answer.first_unix_seconds + static_cast<std::int64_t>(at) * answer.step_seconds);
  json::array series;
  for (const auto& line : answer.lines) {
    const auto& values = line.values;
    using Sample = HistorySample;
    series.push_back(json::object{
        {"card", line.key.card},
        {"slice", line.key.slice},
        {"name", line.key.name},
        {"unix_seconds", times},
        {"seconds", column(values, [](const Sample& one) { return one.seconds; })},
        {"memory_granted", column(values, [](const Sample& one) { return one.granted.count(); })},
        {"memory_used", column(values, [](const Sample& one) { return or_null(one.used); })},
        {"cores_granted", column(values, [](const Sample& one) { return rounded(one.cores_granted); })},
        {"cores_delivered", column(values,
                                   [](const Sample& one) {
                                     return one.cores_delivered ? rounded(*one.cores_delivered) : json::value(nullptr);
                                   })},
        {"temperature", column(values, [](const Sample& one) { return or_null(one.temperature); })},
        {"power", column(values, [](const Sample& one) { return or_null(one.power); })}});
  }
  return {{"step_seconds", answer.step_seconds}, {"series", std::move(series)}};
}

}  // namespace

std::string to_json(const HistoryAnswer& answer) { return json::serialize(value_of(answer)); }

std::string to_json(const std::vector<NamedHistory>& nodes) {
  json::array all;
  for (const auto& one : nodes) {
    json::object object{{"node", one.node}};
    if (one.error.empty())
      object["history"] = value_of(one.answer);
    else
      object["error"] = one.error;
    all.push_back(std::move(object));
  }
  return json::serialize(json::object{{"nodes", std::move(all)}});
}

Result<HistoryAnswer> parse_history_answer(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "history"));
  HistoryAnswer answer;
  const auto step = number(json_read::member(value, "step_seconds"), UINT32_MAX);
  const auto* series = array_in(value, "series");
  if (!step || series == nullptr) return fail(Code::kInvalidArgument, "history: step_seconds or series is missing");
  answer.step_seconds = static_cast<std::uint32_t>(*step);
  for (const auto& one : *series) {
    const auto* times = array_in(one, "unix_seconds");
    if (times == nullptr || times->size() > kMostIntervals)
      return fail(Code::kInvalidArgument, "history: unix_seconds is missing or too long");
    answer.intervals = times->size();
    if (const auto first = number(times, 0)) answer.first_unix_seconds = static_cast<std::int64_t>(*first);
    HistoryLine line;
    line.key = {text_in(one, "card"), text_in(one, "slice"), text_in(one, "name")};
    line.values.resize(times->size());
    for (std::size_t at = 0; at < times->size(); ++at) {
      const auto seconds = count(array_in(one, "seconds"), at);
      if (!seconds) continue;
      HistorySample sample;
      sample.seconds = *seconds;
      const auto bytes = [](double count) { return Bytes(static_cast<std::uint64_t>(count)); };
      sample.granted = bytes(number(array_in(one, "memory_granted"), at).value_or(0));
      if (const auto used = number(array_in(one, "memory_used"), at)) sample.used = bytes(*used);
      sample.cores_granted = number(array_in(one, "cores_granted"), at).value_or(0);
      sample.cores_delivered = number(array_in(one, "cores_delivered"), at);
      sample.temperature = count(array_in(one, "temperature"), at);
      sample.power = count(array_in(one, "power"), at);
      line.values[at] = std::move(sample);
    }
    answer.lines.push_back(std::move(line));
  }
  return answer;
}

}  // namespace carve::codec
