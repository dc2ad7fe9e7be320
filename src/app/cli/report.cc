#include "app/cli/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>

namespace carve::cli {
namespace {

constexpr int kPlotWidth = 900;
constexpr int kPlotHeight = 160;

constexpr std::string_view kStyle =
    "body{font:15px/1.45 system-ui,sans-serif;color:#1b2426;background:#fff;max-width:60rem;margin:1rem auto;padding:0 "
    "1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px "
    "solid "
    "#c6d0d5}td.n,th.n{text-align:right}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:1.5rem}.soft{color:#50606a}"
    "svg{width:100%;height:auto}";

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string day_and_time(std::int64_t unix_seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

std::string list(const std::vector<std::string>& items, const char* none) {
  if (items.empty()) return fmt::format("<p class=\"soft\">{}</p>\n", none);
  std::string out = "<ul>\n";
  for (const auto& item : items) out += "<li>" + escaped(item) + "</li>\n";
  return out + "</ul>\n";
}

/// Promised and delivered compute of all cards, in cards, per interval; nullopt: no node has a value.
struct Sum {
  std::vector<std::optional<double>> promised;
  std::vector<std::optional<double>> delivered;
  std::int64_t first = 0;
  std::uint32_t step = 0;
};

Sum total_of(const std::vector<NodeHistory>& nodes) {
  Sum total;
  for (const auto& node : nodes) {
    if (!node.answer || node.answer->lines.empty()) continue;
    if (total.step == 0) {
      total.first = node.answer->first_unix_seconds;
      total.step = node.answer->step_seconds;
      total.promised.resize(node.answer->intervals);
      total.delivered.resize(node.answer->intervals);
    }
    // The agents answered within seconds of each other, so their intervals differ by one at most.
    const auto shift = (node.answer->first_unix_seconds - total.first) / std::max<std::int64_t>(1, total.step);
    for (const auto& line : node.answer->lines) {
      for (std::size_t at = 0; at < line.values.size(); ++at) {
        const auto to = static_cast<std::int64_t>(at) + shift;
        if (!line.values[at] || to < 0 || to >= static_cast<std::int64_t>(total.promised.size())) continue;
        auto& promised = total.promised[static_cast<std::size_t>(to)];
        auto& delivered = total.delivered[static_cast<std::size_t>(to)];
        promised = promised.value_or(0) + line.values[at]->cores_granted / 100;
        delivered = delivered.value_or(0) + line.values[at]->cores_delivered.value_or(0) / 100;
      }
    }
  }
  return total;
}

std::string path_of(const std::vector<std::optional<double>>& values, double top) {
  std::string path;
  bool drawing = false;
  for (std::size_t at = 0; at < values.size(); ++at) {
    if (!values[at]) {
      drawing = false;
      continue;
    }
    const double x =
        values.size() < 2 ? 0 : static_cast<double>(at) * kPlotWidth / static_cast<double>(values.size() - 1);
    path += fmt::format("{}{:.1f} {:.1f}", drawing ? 'L' : 'M', x, kPlotHeight * (1 - *values[at] / top));
    drawing = true;
  }
  return path;
}

std::string plot(const Sum& total) {
  double top = 1;
  for (const auto* values : {&total.promised, &total.delivered}) {
    for (const auto& value : *values) top = std::max(top, value.value_or(0));
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"cards promised and delivered over time\">"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#f4f6f7\"/>"
      "<path d=\"{2}\" fill=\"none\" stroke=\"#7aa7b0\" stroke-width=\"2\" stroke-dasharray=\"6 4\"/>"
      "<path d=\"{3}\" fill=\"none\" stroke=\"#b4500b\" stroke-width=\"2\"/></svg>\n"
      "<p class=\"soft\">{4} to {5}; 0 to {6:.1f} cards; dashed: promised, solid: delivered</p>\n",
      kPlotWidth, kPlotHeight, path_of(total.promised, top), path_of(total.delivered, top), day_and_time(total.first),
      day_and_time(total.first + static_cast<std::int64_t>(total.promised.size()) * total.step), top);
}

double waste(const UsageHours& hours) { return hours.gib_hours_held - hours.gib_hours_used; }

std::string cells(const UsageHours& hours) {
  return fmt::format(
      "<td class=\"n\">{:.2f}</td><td class=\"n\">{:.2f}</td><td class=\"n\">{:.1f}</td><td "
      "class=\"n\">{:.1f}</td><td class=\"n\">{:.1f}</td></tr>\n",
      hours.card_hours_promised, hours.card_hours_delivered, hours.gib_hours_held, hours.gib_hours_used,
      std::max(0.0, waste(hours)));
}

constexpr std::string_view kColumns =
    "<th class=\"n\">card-hours promised</th><th class=\"n\">delivered</th><th class=\"n\">GiB-hours held</th><th "
    "class=\"n\">used</th><th class=\"n\">held and not used</th></tr>\n";

}  // namespace

std::vector<ReportRow> report_rows(const std::vector<NodeHistory>& namespaces) {
  std::map<std::string, ReportRow> rows;
  for (const auto& node : namespaces) {
    if (!node.answer) continue;
    for (const auto& line : node.answer->lines) rows[line.key.name].hours += hours_of(line);
  }
  std::vector<ReportRow> all;
  for (auto& [name, row] : rows) {
    row.name = name;
    all.push_back(std::move(row));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const ReportRow& a, const ReportRow& b) { return waste(a.hours) > waste(b.hours); });
  return all;
}

std::string report_html(const ReportFacts& facts) {
  const auto rows = report_rows(facts.namespaces);
  UsageHours sum;
  for (const auto& row : rows) sum += row.hours;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Carve "
      "report</title><style>{}</style></head>"
      "<body>\n<h1>Carve report</h1>\n<p>{}: <strong>{}</strong>; {} to {}</p>\n",
      kStyle, escaped(facts.scope), escaped(facts.models), day_and_time(facts.unix_seconds - facts.since.count()),
      day_and_time(facts.unix_seconds));
  std::vector<std::string> silent;
  for (const auto& node : facts.cards) {
    if (!node.answer) silent.push_back(node.node + ": " + node.answer.error().what);
  }
  if (!silent.empty()) out += "<h2>Nodes without history</h2>\n" + list(silent, "");
  out += "<h2>Compute over time</h2>\n" + plot(total_of(facts.cards));
  out += fmt::format("<h2>Namespaces</h2>\n<table><tr><th>namespace</th>{}", kColumns);
  for (const auto& row : rows)
    out += "<tr><td>" + escaped(row.name.empty() ? "(no namespace)" : row.name) + "</td>" + cells(row.hours);
  out += "<tr><td><strong>all</strong></td>" + cells(sum) + "</table>\n";
  out += fmt::format("<h2>Cards</h2>\n<table><tr><th>node</th><th>card</th>{}", kColumns);
  for (const auto& node : facts.cards) {
    if (!node.answer) continue;
    for (const auto& line : node.answer->lines)
      out += "<tr><td>" + escaped(node.node) + "</td><td>" + escaped(line.key.card) + "</td>" + cells(hours_of(line));
  }
  out += "</table>\n<h2>Unhealthy cards now</h2>\n" + list(facts.unhealthy, "None.");
  out += "<h2>Pods that wait now</h2>\n" + list(facts.waiting, "None.");
  return out + "</body></html>\n";
}

std::string report_csv(const ReportFacts& facts) {
  std::string out = "namespace,card_hours_promised,card_hours_delivered,gib_hours_held,gib_hours_used\n";
  for (const auto& row : report_rows(facts.namespaces)) {
    const UsageHours& hours = row.hours;
    out += fmt::format("{},{:.4f},{:.4f},{:.3f},{:.3f}\n", csv_field(row.name), hours.card_hours_promised,
                       hours.card_hours_delivered, hours.gib_hours_held, hours.gib_hours_used);
  }
  return out;
}

}  // namespace carve::cli
