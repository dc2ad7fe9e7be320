#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "app/cli/timeline.h"
#include "core/history/history.h"

namespace carve::cli {

/// What a report is about. Each node's history of its cards, and of its namespaces.
struct ReportFacts {
  std::string scope;  // "this machine", or the cluster's address
  std::chrono::seconds since{};
  std::int64_t unix_seconds = 0;  // now
  std::vector<NodeHistory> cards;
  std::vector<NodeHistory> namespaces;
  std::vector<std::string> unhealthy;  // "n1 GPU-…: XID 79"
  std::vector<std::string> waiting;    // "ml/train-0: no room for 40 GiB"
  std::string models;                  // "4 × NVIDIA H200"
};

/// What one namespace held and used in the time of a report.
struct ReportRow {
  std::string name;
  UsageHours hours;
};
/// Sorted by what was held and not used, the largest first.
[[nodiscard]] std::vector<ReportRow> report_rows(const std::vector<NodeHistory>& namespaces);

/// One HTML file without references to others: sums, waste by namespace, a plot over time, cards, what is unhealthy and
/// what waits.
[[nodiscard]] std::string report_html(const ReportFacts& facts);

/// namespace,card_hours_promised,card_hours_delivered,gib_hours_held,gib_hours_used
[[nodiscard]] std::string report_csv(const ReportFacts& facts);

}  // namespace carve::cli
