#include "app/dashboard/boards.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "port/slice_names.h"

namespace carve::dashboard {
namespace {

using codec::Board;
using codec::BoardCard;
using codec::BoardEvent;
using codec::BoardNode;
using codec::BoardSlice;

/// Adds what the agent reports of the card.
void add_use(const AgentView& view, const CardView& seen, BoardCard* card) {
  card->used = if_reported(seen.used);
  card->utilization_percent = seen.utilization_percent;
  card->temperature_c = seen.temperature_c;
  card->power_w = seen.power_mw / 1000;
  card->foreign = static_cast<std::uint32_t>(seen.foreign.size());
  double delivered = 0;
  for (const auto& slice : view.slices) {
    for (const auto& held : slice.cards) {
      if (held.card == card->uuid) delivered += held.delivered_percent;
    }
  }
  card->delivered_percent = delivered;
}

void add_use(const SliceView& seen, const SliceCardView& held, BoardSlice* slice) {
  slice->agent_id = seen.id;
  slice->state = seen.state;
  slice->used = if_reported(held.used);
  slice->delivered_percent = held.delivered_percent;
  slice->processes = static_cast<std::uint32_t>(seen.processes.size());
}

void add_events(const AgentView& view, const std::string& node, Board* board) {
  for (const auto& event : view.events) {
    BoardEvent one{event.unix_ms, node, {}, event.kind, event.slice, event.text};
    for (const auto& slice : view.slices) {
      if (slice.id == event.slice) one.namespace_name = names_of(slice).namespace_name;
    }
    board->events.push_back(std::move(one));
  }
}

/// Sorts the tables and sums up the nodes.
void finish(Board* board) {
  std::sort(board->nodes.begin(), board->nodes.end(),
            [](const BoardNode& a, const BoardNode& b) { return a.name < b.name; });
  std::sort(board->cards.begin(), board->cards.end(), [](const BoardCard& a, const BoardCard& b) {
    return std::tie(a.node, a.index, a.uuid) < std::tie(b.node, b.index, b.uuid);
  });
  std::sort(board->slices.begin(), board->slices.end(),
            [](const BoardSlice& a, const BoardSlice& b) { return a.id < b.id; });
  std::sort(board->events.begin(), board->events.end(), codec::before);
  codec::sum_nodes(board);
}

BoardSlice slice_of(const SliceView& slice, const SliceCardView& held, const std::string& node) {
  BoardSlice one;
  one.id = node + "/" + slice.id + "/" + held.card;
  one.node = node;
  one.card = held.card;
  const auto names = names_of(slice);
  if (slice.kind == "pod" || slice.kind == "claim") {
    one.namespace_name = names.namespace_name;
    one.pod = names.pod;
    one.container = names.container;
  }
  one.name = slice.name;
  one.kind = slice.kind;
  one.memory = held.limit;
  one.cores = held.compute.hundredths();
  one.core_limit = slice.ceiling.hundredths();
  one.whole = slice.whole;
  one.share = to_string(slice.share);
  one.priority = to_string(slice.priority);
  add_use(slice, held, &one);
  return one;
}

/// The slice in the agent's report that is this holder's; null: the agent does not report it. A claim's part is a
/// request, which the agent's names do not contain: then the only slice of the owner on the card is taken.
const SliceView* reported(const AgentView& view, const Slice& held, const SliceCardView** on_card) {
  const SliceView* found = nullptr;
  std::size_t count = 0;
  for (const auto& slice : view.slices) {
    if (slice.owner != held.owner.uid) continue;
    for (const auto& card : slice.cards) {
      if (card.card != held.card.str()) continue;
      if (names_of(slice).container == held.part) {
        *on_card = &card;
        return &slice;
      }
      found = &slice;
      *on_card = &card;
      ++count;
    }
  }
  return count == 1 ? found : nullptr;
}

/// The card and what is granted of it, without its place.
BoardCard card_of(const Card& card, const CardUse& use) {
  BoardCard one;
  one.uuid = card.id.str();
  one.model = card.model;
  one.healthy = card.health.ok;
  one.reason = card.health.reason;
  one.closed = card.closed;
  one.mode = to_string(card.mode);
  one.memory = card.memory;
  one.granted = use.memory;
  one.free = codec::free_memory(card, use);
  one.cores = card.compute.hundredths();
  one.cores_granted = use.compute.hundredths();
  one.cores_free = codec::free_cores(card, use);
  return one;
}

BoardCard card_of(const codec::GpuObject& gpu) {
  BoardCard card = card_of(gpu.card, codec::use_of(gpu));
  card.node = gpu.node;
  card.index = gpu.index;
  card.driver = gpu.driver_version;
  card.slices = static_cast<std::uint32_t>(gpu.holders.size());
  return card;
}

BoardSlice slice_of(const codec::GpuObject& gpu, const codec::GpuHolder& holder) {
  const Slice& slice = holder.slice;
  BoardSlice one;
  one.node = gpu.node;
  one.card = gpu.card.id.str();
  one.id = slice.owner.uid + "/" + slice.part + "/" + one.card;
  one.namespace_name = holder.namespace_name;
  one.name = codec::name_of(holder);
  one.kind = to_string(slice.owner.kind);
  // "namespace/name": the pod itself, or the first pod that uses the claim.
  const std::string pod = holder.pods.empty() ? std::string() : holder.pods.front();
  if (const auto slash = pod.find('/'); slash != std::string::npos) {
    one.namespace_name = pod.substr(0, slash);
    one.pod = pod.substr(slash + 1);
  } else if (slice.owner.kind == OwnerKind::kPod) {
    one.pod = holder.name;
  }
  one.container = slice.part;
  one.memory = slice.whole ? gpu.card.memory : slice.memory;
  one.cores = slice.whole ? gpu.card.compute.hundredths() : slice.compute.hundredths();
  one.core_limit = slice.ceiling.hundredths();
  one.whole = slice.whole;
  one.share = to_string(slice.share);
  one.priority = to_string(slice.priority);
  one.dialect = slice.dialect;
  one.state = holder.ending ? "ending" : "granted";
  return one;
}

}  // namespace

Board board_of_machine(const AgentView& view, const std::string& node) {
  Board board;
  board.scope = "machine";
  board.nodes.push_back({node, true, {}});
  for (std::size_t at = 0; at < view.cards.size(); ++at) {
    const CardView& seen = view.cards[at];
    BoardCard card = card_of(seen.card, {seen.set_aside, seen.guaranteed, seen.exclusive});
    card.node = node;
    card.index = static_cast<int>(at);
    card.driver = view.driver_version;
    if (card.healthy) card.reason = seen.remark;
    for (const auto& slice : view.slices) {
      for (const auto& held : slice.cards) card.slices += held.card == card.uuid ? 1 : 0;
    }
    add_use(view, seen, &card);
    board.cards.push_back(std::move(card));
  }
  for (const auto& slice : view.slices) {
    for (const auto& held : slice.cards) board.slices.push_back(slice_of(slice, held, node));
  }
  add_events(view, node, &board);
  if (view.gpu_state != "ok") board.notice = "The driver is " + view.gpu_state + ": " + view.gpu_reason + ". ";
  if (view.arbiter_state != "ok")
    board.notice += "The arbiter is " + view.arbiter_state + ": " + view.arbiter_reason + ". ";
  if (view.waiting != 0) board.notice += std::to_string(view.waiting) + " request(s) wait for free capacity.";
  finish(&board);
  return board;
}

Board board_of_cluster(const codec::ClusterView& view, const AgentViews& agents) {
  Board board;
  board.scope = "cluster";
  board.notice = view.unread;
  board.waiting = view.waiting;
  std::map<std::string, BoardNode> nodes;
  for (const auto& gpu : view.cards) {
    auto& node = nodes[gpu.node];
    node.name = gpu.node;
    const auto found = agents.find(gpu.node);
    const AgentView* agent = found != agents.end() && found->second.view ? &*found->second.view : nullptr;
    BoardCard card = card_of(gpu);
    if (agent != nullptr) {
      for (const auto& seen : agent->cards) {
        if (seen.card.id.str() == card.uuid) add_use(*agent, seen, &card);
      }
    }
    for (const auto& holder : gpu.holders) {
      BoardSlice slice = slice_of(gpu, holder);
      const SliceCardView* held = nullptr;
      const SliceView* seen = agent == nullptr ? nullptr : reported(*agent, holder.slice, &held);
      if (seen != nullptr) add_use(*seen, *held, &slice);
      board.slices.push_back(std::move(slice));
    }
    board.cards.push_back(std::move(card));
  }
  for (const auto& [name, agent] : agents) {
    const auto node = nodes.find(name);
    if (node == nodes.end()) continue;
    node->second.answers = agent.view.has_value();
    node->second.error = agent.error;
  }
  for (auto& [name, node] : nodes) board.nodes.push_back(std::move(node));
  finish(&board);
  return board;
}

}  // namespace carve::dashboard
