#include "app/cli/views.h"

#include <fmt/core.h>

#include <map>

#include "app/cli/cells.h"
#include "app/cli/table.h"

namespace carve::cli {
namespace {

std::string head(const AgentView& view) {
  std::string text =
      fmt::format("{}; CUDA {}; carve {}, page ABI {}", describe_cards(view),
                  view.cuda_version.empty() ? "?" : view.cuda_version, view.version, view.page_abi);
  if (view.gpu_state != "ok") text += fmt::format("\nNVML {}: {}", view.gpu_state, view.gpu_reason);
  if (view.arbiter_state != "ok")
    text += fmt::format("\narbiter {}: {}", view.arbiter_state, view.arbiter_reason);
  if (!view.journal_error.empty()) text += "\njournal: " + view.journal_error;
  if (!view.library_error.empty()) text += "\nlibraries: " + view.library_error;
  return text + "\n";
}

std::string card_line(const CardView& card) {
  std::string text = fmt::format("{}  {}  minor {}", card.card.id.str(), card.card.model, card.card.minor);
  if (!card.pci_bus_id.empty()) text += "  " + card.pci_bus_id;
  if (card.card.numa_node >= 0) text += fmt::format("  NUMA {}", card.card.numa_node);
  if (!card.card.health.ok) text += "  UNHEALTHY: " + card.card.health.reason;
  if (!card.remark.empty()) text += "  (" + card.remark + ")";
  return text + "\n";
}

/// "  slice a: its memory limit refused 3 requests for 4 GiB in all"; empty: none was refused.
std::string refused_line(const SliceView& slice, const SliceCardView& held) {
  if (!held.counters || held.counters->refused_requests == 0) return {};
  return fmt::format("  slice {}: its memory limit refused {} request{} for {} in all\n", slice.id,
                     held.counters->refused_requests, held.counters->refused_requests == 1 ? "" : "s",
                     to_human(Bytes(held.counters->refused_bytes)));
}

}  // namespace

std::string describe_cards(const AgentView& view) {
  if (view.cards.empty()) return "no cards (NVML " + view.gpu_state + ": " + view.gpu_reason + ")";
  std::map<std::string, int> models;
  for (const auto& card : view.cards) ++models[card.card.model];
  std::string text;
  for (const auto& [model, count] : models) {
    text += fmt::format("{}{} × {}", text.empty() ? "" : ", ", count, model);
  }
  return text + ", driver " + (view.driver_version.empty() ? "?" : view.driver_version);
}

std::string render_inspect(const AgentView& view) {
  std::string out = head(view);
  for (const auto& card : view.cards) {
    const Bytes free = card.exclusive ? Bytes() : card.card.memory - card.set_aside;
    const auto left = card.exclusive ? CoreShare() : CoreShare::whole() - card.guaranteed;
    out += "\n" + card_line(card);
    out += fmt::format("  memory   {} granted of {}, {} free{}\n", to_human(card.set_aside), to_human(card.card.memory),
                       to_human(free), card.exclusive ? " (exclusive: one owner has the whole card)" : "");
    out += fmt::format("  compute  {} guaranteed of 100, {} free\n", card.guaranteed.hundredths(),
                       left.hundredths());
    std::string refused;
    std::vector<std::vector<std::string>> rows = {
        {"SLICE", "KIND", "MEMORY LIMIT", "COMPUTE", "PRIORITY", "USER", "STATE", "NAME"}};
    for (const auto& slice : view.slices) {
      for (const auto& held : slice.cards) {
        if (held.card != card.card.id.str()) continue;
        rows.push_back({slice.id, slice.kind, memory_cell(held.limit), share_cell(slice, held),
                        std::string(to_string(slice.priority)), std::to_string(slice.uid), slice.state,
                        clipped(slice.name, 40)});
        refused += refused_line(slice, held);
      }
    }
    if (rows.size() > 1) out += aligned(rows, {2}, "  ") + refused;
    for (const auto& process : card.foreign) {
      out += fmt::format("  outside any slice: process {} ({}) uses {}\n", process.pid, process.command,
                         memory_cell(process.memory));
    }
  }
  if (view.waiting > 0) out += fmt::format("\n{} request(s) wait for free capacity\n", view.waiting);
  return out;
}

std::string render_top(const AgentView& view) {
  std::string out = head(view);
  for (const auto& card : view.cards) {
    out += "\n" + card_line(card);
    const double used = card.card.memory.count() == 0 ? 0
                                                      : static_cast<double>(card.used.count()) /
                                                            static_cast<double>(card.card.memory.count());
    out += fmt::format("  memory {} {}   compute {} {} %   {} °C   {} W\n", bar(used, 20),
                       used_cell(card.used, card.card.memory), bar(card.utilization_percent / 100.0, 20),
                       card.utilization_percent, card.temperature_c, card.power_mw / 1000);
    std::vector<std::vector<std::string>> rows = {
        {"SLICE", "PID", "COMMAND", "MEMORY USED / LIMIT", "COMPUTE REQUESTED", "DELIVERED", "NVML SM", "STATE"}};
    for (const auto& slice : view.slices) {
      for (const auto& held : slice.cards) {
        if (held.card != card.card.id.str()) continue;
        rows.push_back({slice.id, "", clipped(slice.name, 24), used_cell(held.used, held.limit),
                        share_cell(slice, held), fmt::format("{:.1f} %", held.delivered_percent), "",
                        slice.state});
        for (const auto& process : slice.processes) {
          if (!process.card.empty() && process.card != held.card) continue;
          rows.push_back({"", std::to_string(process.pid), clipped(process.command, 24),
                          process.card.empty() ? "-" : memory_cell(process.memory), "", "",
                          process.card.empty() ? "-" : fmt::format("{} %", process.sm_percent),
                          process.card.empty() || process.registered || slice.whole ? "" : "not registered"});
        }
      }
    }
    for (const auto& process : card.foreign) {
      rows.push_back({"(no slice)", std::to_string(process.pid), clipped(process.command, 24),
                      memory_cell(process.memory), "", "", fmt::format("{} %", process.sm_percent), "foreign"});
    }
    if (rows.size() > 1) out += aligned(rows, {1, 3, 5, 6}, "  ");
  }
  const std::size_t shown = view.events.size() > 5 ? 5 : view.events.size();
  for (std::size_t i = view.events.size() - shown; i < view.events.size(); ++i) {
    if (i == view.events.size() - shown) out += "\nlast events\n";
    const auto& event = view.events[i];
    out += fmt::format("  {} {} {}\n", event.kind, event.slice, event.text);
  }
  return out;
}

std::string render_slices(const AgentView& view) {
  std::vector<std::vector<std::string>> rows = {
      {"SLICE", "KIND", "CARD", "MEMORY LIMIT", "COMPUTE", "PRIORITY", "USER", "STATE", "NAME"}};
  for (const auto& slice : view.slices) {
    for (const auto& held : slice.cards) {
      rows.push_back({slice.id, slice.kind, short_uuid(held.card), memory_cell(held.limit),
                      share_cell(slice, held), std::string(to_string(slice.priority)),
                      std::to_string(slice.uid), slice.state, clipped(slice.name, 40)});
    }
  }
  return aligned(rows, {3}, "");
}

std::string render_grant(const Grant& grant) {
  std::string out = fmt::format("slice   {}\n", grant.slice);
  for (const auto& card : grant.cards) {
    out += fmt::format("card    {}  {}  memory {}  compute {}\n", card.card.str(), card.model,
                       to_human(card.memory), card.compute.hundredths());
  }
  if (!grant.device.empty()) {
    out += fmt::format("device  {}\nuse     podman run --device {} …\n", grant.device, grant.device);
  }
  return out;
}

}  // namespace carve::cli
