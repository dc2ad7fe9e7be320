#include "codec/history/history_segment.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "codec/journal/journal_text.h"

namespace carve::codec {
namespace {

// The first byte of a payload.
constexpr char kKeyRecord = 'K';
constexpr char kFrameRecord = 'F';
constexpr std::size_t kRecordHead = 8;
constexpr std::size_t kLargestRecord = 4UL << 20;
constexpr std::uint64_t kMib = 1ULL << 20;
constexpr std::uint64_t kMostMib = 1ULL << 40;
constexpr double kTenths = 10;

void put_fixed(std::uint32_t value, std::string* out) {
  for (int at = 0; at < 4; ++at) *out += static_cast<char>(value >> (8 * at));
}

std::uint32_t fixed_at(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t at = 0; at < 4; ++at)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at])) << (8 * at);
  return value;
}

/// Seven bits per byte, the lowest first; the high bit says that more follow.
void put(std::uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7U) *out += static_cast<char>((value & 0x7fU) | 0x80U);
  *out += static_cast<char>(value);
}

void put(const std::string& text, std::string* out) {
  put(text.size(), out);
  *out += text;
}

/// An optional number as one more than itself; 0: it has no value.
template <class Value>
void put_optional(const std::optional<Value>& value, double scale, std::string* out) {
  put(value ? static_cast<std::uint64_t>(std::llround(std::max(0.0, static_cast<double>(*value) * scale))) + 1 : 0,
      out);
}

/// Reads what put() wrote; `ok` becomes false at the first value that is not there.
struct Cursor {
  std::string_view rest;
  bool ok = true;

  std::uint64_t number(std::uint64_t most) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest.empty()) break;
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) {
        if (value <= most) return value;
        break;
      }
    }
    ok = false;
    return 0;
  }
  std::string text() {
    const auto size = number(4096);
    if (!ok || size > rest.size()) {
      ok = false;
      return {};
    }
    std::string value(rest.substr(0, size));
    rest.remove_prefix(size);
    return value;
  }
  std::optional<double> optional(std::uint64_t most, double scale) {
    const auto value = number(most);
    return value == 0 ? std::nullopt : std::optional(static_cast<double>(value - 1) / scale);
  }
};

std::string record(const std::string& payload) {
  std::string out;
  put_fixed(static_cast<std::uint32_t>(payload.size()), &out);
  put_fixed(crc32c(payload), &out);
  return out + payload;
}

std::uint64_t mib(Bytes bytes) { return (bytes.count() + kMib / 2) / kMib; }

std::string payload_of(std::uint32_t number, const HistorySample& one) {
  std::string out;
  put(number, &out);
  put(one.seconds, &out);
  put(std::min(mib(one.granted), kMostMib), &out);
  put_optional(one.used ? std::optional(std::min(mib(*one.used), kMostMib)) : std::nullopt, 1, &out);
  put(static_cast<std::uint64_t>(std::llround(std::max(0.0, one.cores_granted) * kTenths)), &out);
  put_optional(one.cores_delivered, kTenths, &out);
  put_optional(one.temperature, 1, &out);
  put_optional(one.power, 1, &out);
  return out;
}

bool take_sample(Cursor* from, const std::vector<HistoryKey>& keys, HistorySample* one) {
  constexpr std::uint64_t kMany = 1ULL << 32U;
  const auto number = from->number(kMany);
  if (!from->ok || number >= keys.size()) return false;
  one->key = keys[number];
  one->seconds = static_cast<std::uint32_t>(from->number(kMany - 1));
  one->granted = Bytes(from->number(kMostMib) * kMib);
  if (const auto used = from->optional(kMostMib + 1, 1)) one->used = Bytes(static_cast<std::uint64_t>(*used) * kMib);
  one->cores_granted = static_cast<double>(from->number(kMany)) / kTenths;
  one->cores_delivered = from->optional(kMany, kTenths);
  if (const auto value = from->optional(kMany - 1, 1)) one->temperature = static_cast<std::uint32_t>(*value);
  if (const auto value = from->optional(kMany - 1, 1)) one->power = static_cast<std::uint32_t>(*value);
  return from->ok;
}

}  // namespace

std::string HistoryWriter::encode(const HistoryFrame& frame, std::size_t most) {
  std::string keys;
  std::string samples;
  std::uint64_t count = 0;
  for (const auto& one : frame.samples) {
    const auto found = numbers_.find(one.key);
    const auto number = found != numbers_.end() ? found->second : static_cast<std::uint32_t>(numbers_.size());
    std::string key;
    if (found == numbers_.end()) {
      std::string text(1, kKeyRecord);
      put(one.key.card, &text);
      put(one.key.slice, &text);
      put(one.key.name, &text);
      key = record(text);
    }
    const auto sample = payload_of(number, one);
    if (keys.size() + samples.size() + key.size() + sample.size() + 64 > most) {
      left_out_ += frame.samples.size() - count;
      break;
    }
    if (found == numbers_.end()) numbers_.emplace(one.key, number);
    keys += key;
    samples += sample;
    ++count;
  }
  std::string payload(1, kFrameRecord);
  put(static_cast<std::uint64_t>(std::max<std::int64_t>(0, frame.unix_seconds)), &payload);
  put(count, &payload);
  std::string out(begun_ ? std::string_view() : kHistoryMagic);
  begun_ = true;
  return out + keys + record(payload + samples);
}

Result<void> decode_history(std::string_view bytes, const std::function<void(const HistoryFrame&)>& use) {
  if (!bytes.starts_with(kHistoryMagic)) return fail(Code::kInvalidArgument, "not a file of the history");
  bytes.remove_prefix(kHistoryMagic.size());
  std::vector<HistoryKey> keys;
  while (bytes.size() >= kRecordHead) {
    const std::size_t size = fixed_at(bytes);
    if (size == 0 || size > kLargestRecord || size > bytes.size() - kRecordHead) break;
    const auto payload = bytes.substr(kRecordHead, size);
    if (crc32c(payload) != fixed_at(bytes.substr(4))) break;
    bytes.remove_prefix(kRecordHead + size);
    Cursor from{payload.substr(1)};
    if (payload.front() == kKeyRecord) {
      HistoryKey key;
      key.card = from.text();
      key.slice = from.text();
      key.name = from.text();
      if (!from.ok) break;
      keys.push_back(std::move(key));
    } else if (payload.front() == kFrameRecord) {
      HistoryFrame frame;
      frame.unix_seconds = static_cast<std::int64_t>(from.number(1ULL << 40U));
      const auto count = from.number(payload.size());
      for (std::uint64_t at = 0; at < count && from.ok; ++at) {
        HistorySample one;
        if (!take_sample(&from, keys, &one)) from.ok = false;
        if (from.ok) frame.samples.push_back(std::move(one));
      }
      if (!from.ok) break;
      use(frame);
    }  // a record of a later version is skipped
  }
  return {};
}

Result<HistoryQuery> parse_history_query(const WebQuery& query) {
  HistoryQuery asked;
  asked.card = text_in(query, "card");
  asked.slice = text_in(query, "slice");
  asked.name = text_in(query, "name");
  const auto by = text_in(query, "by");
  const auto known = history_by_from(by);
  if (!known && !by.empty())
    return fail(Code::kInvalidArgument, "by: \"" + by.substr(0, 32) + "\"; legal are cards, slices and namespaces");
  asked.by = known.value_or(asked.by);
  CARVE_TRY(asked.since, parse_history_span("since", text_in(query, "since")));
  CARVE_TRY(const auto points, number_in(query, "points", asked.points, 1, kHistoryMostPoints));
  asked.points = static_cast<std::uint32_t>(points);
  return asked;
}

std::vector<std::pair<std::string, std::string>> history_parameters(const HistoryQuery& query) {
  return {{"card", query.card},
          {"slice", query.slice},
          {"name", query.name},
          {"by", std::string(to_string(query.by))},
          {"since", std::to_string(std::max<std::int64_t>(1, query.since.count() / 60)) + "m"},
          {"points", std::to_string(query.points)}};
}

Result<std::chrono::seconds> parse_history_span(std::string_view field, std::string_view text) {
  if (text.empty()) return std::chrono::seconds(3600);
  std::uint64_t count = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit =
      wrong == std::errc() ? std::string_view(end, static_cast<std::size_t>(text.data() + text.size() - end)) : "";
  std::uint64_t seconds = 0;
  if (unit == "m") seconds = 60;
  if (unit == "h") seconds = 3600;
  if (unit == "d") seconds = 86400;
  const auto most = static_cast<std::uint64_t>(std::chrono::seconds(kHistoryLongest).count());
  if (seconds == 0 || count == 0 || count > most / seconds) {
    return fail(Code::kInvalidArgument, std::string(field) + ": \"" + std::string(text.substr(0, 32)) +
                                            "\" is not a time; legal are whole minutes, hours and days up to 31d: 15m, "
                                            "24h, 7d");
  }
  return std::chrono::seconds(count * seconds);
}

}  // namespace carve::codec
