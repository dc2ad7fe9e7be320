#include "app/cli/cluster/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/cli/cells.h"
#include "app/cli/table.h"
#include "app/cli/timeline.h"

namespace carve::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string state_of(const codec::GpuObject& gpu) {
  if (!gpu.card.health.ok) return "UNHEALTHY: " + gpu.card.health.reason;
  std::string text = "healthy";
  if (!gpu.card.closed.empty()) text += "; " + gpu.card.closed;
  if (gpu.card.mode != CardMode::kAny) text += fmt::format("; mode {}", to_string(gpu.card.mode));
  return text;
}

std::string granted(const codec::GpuObject& gpu, const CardUse& use) {
  return fmt::format("{} of {}", to_human(use.memory), to_human(gpu.card.memory));
}

/// Each pod that has a slice, once, in the order of the holders.
std::string holders_of(const codec::GpuObject& gpu) {
  std::string text;
  std::set<std::string> seen;
  for (const auto& holder : gpu.holders) {
    const auto name = codec::name_of(holder);
    if (seen.insert(name).second) text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "-" : text;
}

void add_card(const codec::GpuObject& gpu, bool wide, Rows* rows) {
  const CardUse use = codec::use_of(gpu);
  if (!wide) {
    rows->push_back({gpu.node, std::to_string(gpu.index), gpu.card.model, state_of(gpu), granted(gpu, use),
                     fmt::format("{} of 100", use.compute.hundredths()), clipped(holders_of(gpu), 60)});
    return;
  }
  const std::vector<std::string> card = {gpu.node, gpu.card.id.str(), gpu.card.model, state_of(gpu)};
  auto empty = card;
  empty.insert(empty.end(), {"-", "-", "-", "-", "-", "-"});
  if (gpu.holders.empty()) rows->push_back(std::move(empty));
  for (const auto& holder : gpu.holders) {
    const Slice& slice = holder.slice;
    auto row = card;
    row.insert(row.end(), {codec::name_of(holder) + (holder.ending ? " (ending)" : ""), slice.part,
                           to_human(slice.memory),
                           share_cell(slice.whole, slice.compute, slice.ceiling, slice.share),
                           std::string(to_string(slice.priority)), slice.dialect});
    rows->push_back(std::move(row));
  }
}

}  // namespace

std::string render_cluster(const codec::ClusterView& view, bool wide) {
  if (view.cards.empty() && view.waiting.empty()) return "no cards: no agent has reported a card yet\n";
  Rows rows = {{"NODE", "CARD", "MODEL", "STATE", "MEMORY GRANTED", "COMPUTE", "HELD BY"}};
  if (wide)
    rows = {{"NODE", "CARD", "MODEL", "STATE", "HELD BY", "PART", "MEMORY", "COMPUTE", "PRIORITY", "DIALECT"}};
  Bytes memory;
  Bytes taken;
  std::uint32_t compute = 0;
  std::set<std::string> nodes;
  for (const auto& gpu : view.cards) {
    add_card(gpu, wide, &rows);
    const CardUse use = codec::use_of(gpu);
    memory += gpu.card.memory;
    taken += use.memory;
    compute += use.compute.hundredths();
    nodes.insert(gpu.node);
  }
  std::string out = aligned(rows, {}, "");
  out += fmt::format("\n{} card{} on {} node{}: {} of {} and {} of {} granted\n", view.cards.size(),
                     view.cards.size() == 1 ? "" : "s", nodes.size(), nodes.size() == 1 ? "" : "s", to_human(taken),
                     to_human(memory), compute, view.cards.size() * 100);
  for (const auto& pod : view.waiting) {
    out += fmt::format("waiting: {}/{} requests {}{}{}\n", pod.namespace_name, pod.name, pod.asks,
                       pod.why.empty() ? "" : ": ", pod.why);
  }
  if (!view.unread.empty()) out += "note: " + view.unread + "\n";
  return out;
}

std::string cluster_csv(const codec::ClusterView& view) {
  std::string out =
      "node,card,model,state,held_by,part,memory_bytes,cores,whole,share,priority,dialect,ending,core_limit\n";
  for (const auto& gpu : view.cards) {
    const std::string card = fmt::format("{},{},{},{}", csv_field(gpu.node), csv_field(gpu.card.id.str()),
                                         csv_field(gpu.card.model), csv_field(state_of(gpu)));
    if (gpu.holders.empty()) out += card + ",,,,,,,,,,\n";
    for (const auto& holder : gpu.holders) {
      const Slice& slice = holder.slice;
      out += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", card, csv_field(codec::name_of(holder)),
                         csv_field(slice.part), slice.memory.count(), slice.compute.hundredths(), slice.whole,
                         to_string(slice.share), to_string(slice.priority), csv_field(slice.dialect), holder.ending,
                         slice.ceiling.hundredths());
    }
  }
  return out;
}

std::string cluster_names(const codec::ClusterView& view) {
  std::string out;
  for (const auto& gpu : view.cards) out += "gpu.elasticgpu.io/" + gpu.name + "\n";
  return out;
}

}  // namespace carve::cli
