#include "app/cli/dialects.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "app/cli/table.h"
#include "codec/dialects/dialect.h"

namespace carve::cli {
namespace {

using codec::Dialect;
using codec::ResourceName;
using codec::Total;

constexpr codec::DialectSettings kByDefault{};

std::string_view shown_on_nodes(const ResourceName& one) {
  switch (one.total) {
    case Total::kNone:
      return "-";
    case Total::kCards:
      return "cards";
    case Total::kSlots:
      return "slots";
    case Total::kCardsOfNvidia:
      return "cards; slots with dialects.hami = on";
    case Total::kCardsOfDeepomatic:
      return "parts";
    case Total::kHundredths:
      return "hundredths";
    case Total::kMemory:
      return "memory";
  }
  return "-";
}

std::string setting_of(const Dialect& dialect) {
  if (dialect.setting.empty()) return "-";
  return fmt::format("{}{}", dialect.setting, codec::is_served(dialect, kByDefault) ? "" : " (off by default)");
}

/// Each sorted and once, as a YAML list in one line.
std::string list(std::string_view key, const std::set<std::string_view>& words) {
  std::string items;
  for (const auto word : words) items += fmt::format("{}{}", items.empty() ? "" : ", ", word);
  return fmt::format("{}: [{}]\n", key, items);
}

std::string yaml() {
  std::set<std::string_view> asked, totals, ignored, labels, annotations, shown;
  for (const Dialect& dialect : codec::dialects()) {
    for (const ResourceName& one : dialect.names) {
      if (one.asked) asked.insert(one.name);
      if (one.total != Total::kNone) totals.insert(one.name);
      ignored.insert(one.name);
    }
    labels.insert(dialect.labels.begin(), dialect.labels.end());
    annotations.insert(dialect.annotations.begin(), dialect.annotations.end());
    shown.insert(dialect.shown.begin(), dialect.shown.end());
  }
  return "# resource names by which pods request cards: admission\n" + list("requested", asked) +
         "# resource names whose totals Nodes show: the policy for agents\n" + list("totals", totals) +
         "# resource names that kube-scheduler must not count: its ignoredResources\n" + list("ignored", ignored) +
         "# pod labels, and starts of pod annotations, on which requests depend: admission\n" + list("labels", labels) +
         list("annotations", annotations) +
         "# starts of pod annotations that only Carve may write: admission, the policies for records and control\n" +
         list("shown", shown);
}

std::string markdown() {
  std::string text =
      "| dialect | resource name | unit and legal values | a Node shows | enforced | original | setting |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Dialect& dialect : codec::dialects()) {
    bool first = true;
    for (const ResourceName& one : dialect.names) {
      text += fmt::format("| {} | `{}` | {} | {} | {} | {} | {} |\n", first ? dialect.name : "", one.name, one.amounts,
                          shown_on_nodes(one), first ? dialect.enforced : "", first ? dialect.original : "",
                          first ? setting_of(dialect) : "");
      first = false;
    }
  }
  return text;
}

std::string table() {
  std::vector<std::vector<std::string>> rows = {{"DIALECT", "RESOURCE NAME", "UNIT AND LEGAL VALUES", "SETTING"}};
  for (const Dialect& dialect : codec::dialects()) {
    bool first = true;
    for (const ResourceName& one : dialect.names) {
      rows.push_back({first ? std::string(dialect.name) : "", std::string(one.name), std::string(one.amounts),
                      first ? setting_of(dialect) : ""});
      first = false;
    }
  }
  return aligned(rows, {}, "");
}

}  // namespace

std::string render_dialects(std::string_view format) {
  return format == "yaml" ? yaml() : format == "markdown" ? markdown() : table();
}

}  // namespace carve::cli
