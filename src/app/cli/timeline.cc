#include "app/cli/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "app/cli/cells.h"
#include "codec/history/history_segment.h"

namespace carve::cli {
namespace {

using Values = std::vector<std::optional<double>>;

constexpr std::array<const char*, 8> kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

struct Range {
  double least = 0;
  double mean = 0;
  double most = 0;
  bool known = false;
};

Range range_of(const Values& values) {
  Range range;
  double sum = 0;
  int count = 0;
  for (const auto& value : values) {
    if (!value) continue;
    range.least = count == 0 ? *value : std::min(range.least, *value);
    range.most = count == 0 ? *value : std::max(range.most, *value);
    sum += *value;
    ++count;
  }
  range.known = count != 0;
  if (count != 0) range.mean = sum / count;
  return range;
}

template <class Of>
Values column(const HistoryLine& line, const Of& of) {
  Values values;
  for (const auto& value : line.values) values.push_back(value ? of(*value) : std::nullopt);
  return values;
}

std::string duration(std::size_t seconds) {
  if (seconds % 86400 == 0) return fmt::format("{}d", seconds / 86400);
  if (seconds % 3600 == 0) return fmt::format("{}h", seconds / 3600);
  if (seconds % 60 == 0) return fmt::format("{}m", seconds / 60);
  return fmt::format("{}s", seconds);
}

Bytes bytes(double count) { return Bytes(static_cast<std::uint64_t>(std::max(0.0, count))); }

void add_line(const HistoryLine& line, std::size_t columns, std::string* out) {
  const auto promised =
      range_of(column(line, [](const HistorySample& one) { return std::optional(one.cores_granted); }));
  const auto delivered = column(line, [](const HistorySample& one) { return one.cores_delivered; });
  const auto compute = range_of(delivered);
  *out += fmt::format("  compute  {}\n", heights(delivered, std::max(100.0, compute.most), columns));
  if (compute.known) {
    *out += fmt::format("           delivered {:.1f} % on average, {:.1f} to {:.1f}; promised {:.0f} at most\n",
                        compute.mean, compute.least, compute.most, promised.most);
  } else {
    *out += "           not known\n";
  }
  const auto limit = range_of(
      column(line, [](const HistorySample& one) { return std::optional(static_cast<double>(one.granted.count())); }));
  const auto used = column(line, [](const HistorySample& one) {
    return one.used ? std::optional(static_cast<double>(one.used->count())) : std::nullopt;
  });
  const auto memory = range_of(used);
  *out += fmt::format("  memory   {}\n", heights(used, std::max(limit.most, memory.most), columns));
  if (memory.known) {
    *out +=
        fmt::format("           used {} on average, {} at most; promised {} at most\n", memory_cell(bytes(memory.mean)),
                    memory_cell(bytes(memory.most)), memory_cell(bytes(limit.most)));
  } else {
    *out += "           not known\n";
  }
}

std::string number(const std::optional<std::uint32_t>& value) { return value ? std::to_string(*value) : std::string(); }

}  // namespace

std::string heights(const std::vector<std::optional<double>>& values, double top, std::size_t columns) {
  std::string text;
  columns = std::min(columns, values.size());
  for (std::size_t column = 0; column < columns; ++column) {
    double sum = 0;
    int count = 0;
    for (std::size_t at = column * values.size() / columns; at < (column + 1) * values.size() / columns; ++at) {
      if (!values[at]) continue;
      sum += *values[at];
      ++count;
    }
    if (count == 0) {
      text += ' ';
      continue;
    }
    const double share = top <= 0 ? 0 : std::clamp(sum / count / top, 0.0, 1.0);
    text += kHeights[static_cast<std::size_t>(std::lround(share * (kHeights.size() - 1)))];
  }
  return text;
}

std::vector<HistoryQuery> queries_about(const std::string& what, std::chrono::seconds since) {
  HistoryQuery query;
  query.since = since;
  query.points = 240;
  if (what.empty()) return {query};
  if (what.starts_with("GPU-") || what.starts_with("MIG-")) {
    query.card = what;
    HistoryQuery slices = query;
    slices.by = HistoryQuery::By::kSlices;
    return {query, slices};
  }
  query.by = HistoryQuery::By::kSlices;
  (what.find('/') == std::string::npos ? query.slice : query.name) = what;
  return {query};
}

std::string render_timeline(const std::vector<NodeHistory>& nodes, std::size_t width) {
  const std::size_t columns = width > 20 ? width - 12 : 8;
  std::string out;
  for (const auto& node : nodes) {
    if (!node.answer) {
      out += fmt::format("{}  {}\n", node.node, node.answer.error().what);
      continue;
    }
    const auto& answer = *node.answer;
    const std::size_t shown = std::max<std::size_t>(1, std::min(columns, answer.intervals));
    for (const auto& line : answer.lines) {
      const std::string what = line.key.of_card() ? "card" : line.key.name.empty() ? line.key.slice : line.key.name;
      out += fmt::format("{}  {}  {}  the last {}, {} per column\n", node.node, short_uuid(line.key.card), what,
                         duration(answer.intervals * answer.step_seconds),
                         duration(answer.intervals * answer.step_seconds / shown));
      add_line(line, columns, &out);
    }
  }
  return out.empty() ? "nothing was recorded in this time\n" : out;
}

std::string csv_field(const std::string& text) {
  std::string safe = text;
  if (!safe.empty() && std::string_view("=+-@\t\r").find(safe.front()) != std::string_view::npos) safe = "'" + safe;
  if (safe.find_first_of(",\"\n\r") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string timeline_csv(const std::vector<NodeHistory>& nodes) {
  std::string out =
      "node,card,slice,name,unix_seconds,seconds,memory_granted_bytes,memory_used_bytes,cores_granted,cores_delivered,"
      "temperature_celsius,power_watts\n";
  for (const auto& node : nodes) {
    if (!node.answer) continue;
    for (const auto& line : node.answer->lines) {
      for (std::size_t at = 0; at < line.values.size(); ++at) {
        if (!line.values[at]) continue;
        const auto& one = *line.values[at];
        out += fmt::format("{},{},{},{},{},{},{},{},{:.1f},{},{},{}\n", csv_field(node.node), csv_field(line.key.card),
                           csv_field(line.key.slice), csv_field(line.key.name),
                           node.answer->first_unix_seconds + static_cast<std::int64_t>(at) * node.answer->step_seconds,
                           one.seconds, one.granted.count(), one.used ? std::to_string(one.used->count()) : "",
                           one.cores_granted, one.cores_delivered ? fmt::format("{:.1f}", *one.cores_delivered) : "",
                           number(one.temperature), number(one.power));
      }
    }
  }
  return out;
}

std::string timeline_json(const std::vector<NodeHistory>& nodes) {
  std::vector<codec::NamedHistory> named;
  for (const auto& node : nodes) {
    codec::NamedHistory one{node.node, {}, {}};
    if (node.answer)
      one.answer = *node.answer;
    else
      one.error = node.answer.error().what;
    named.push_back(std::move(one));
  }
  return codec::to_json(named);
}

}  // namespace carve::cli
