#include "app/control/state/node_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "codec/dialects/dialect.h"
#include "codec/dialects/gpushare_unhealthy.h"
#include "codec/node/card_modes.h"
#include "codec/node/plugin_conflict.h"

namespace carve::control {
namespace {

LinkLevel level_named(std::string_view word) {
  for (int level = 1; level <= static_cast<int>(LinkLevel::kNvLink); ++level) {
    if (to_string(static_cast<LinkLevel>(level)) == word) return static_cast<LinkLevel>(level);
  }
  return LinkLevel::kUnknown;
}

LinkMatrix links_of(const NodeEntry& entry) {
  std::vector<CardId> ids;
  for (const auto& [name, gpu] : entry.gpus) ids.push_back(gpu.object.card.id);
  LinkMatrix links(std::move(ids));
  for (const auto& [name, gpu] : entry.gpus) {
    for (const auto& link : gpu.object.links) {
      links.set(gpu.object.card.id, CardId(link.uuid),
                {level_named(link.level), static_cast<std::uint8_t>(link.lanes)});
    }
  }
  return links;
}

Card card_of(const GpuEntry& gpu, const NodeEntry& entry) {
  Card card = gpu.object.card;
  card.mode = entry.node.modes.of(card.id, static_cast<std::size_t>(gpu.object.index));
  const auto& plugins = gpu.object.plugins;
  if (gpu.unreadable_holders > 0) {
    card.closed = "closed: its GPU object names a holder that cannot be parsed";
  } else if (!plugins.empty() && std::find(plugins.begin(), plugins.end(), "slots") == plugins.end()) {
    card.closed = "allocated through DRA only";
  } else if (entry.marked.contains(gpu.object.index)) {
    card.closed = fmt::format("closed: ConfigMap {}/{}{} names it", codec::kUnhealthyGpusSpace,
                              codec::kUnhealthyGpusPrefix, gpu.object.node);
  }
  return card;
}

bool same_links(const codec::GpuObject& a, const codec::GpuObject& b) {
  return a.card.id == b.card.id &&
         std::equal(a.links.begin(), a.links.end(), b.links.begin(), b.links.end(),
                    [](const codec::GpuLink& x, const codec::GpuLink& y) {
                      return x.uuid == y.uuid && x.level == y.level && x.lanes == y.lanes;
                    });
}

/// Compares everything of a GPU object that card_of() reads.
bool same_card(const GpuEntry& a, const GpuEntry& b) {
  return a.unreadable_holders == b.unreadable_holders && a.object.card == b.object.card &&
         a.object.plugins == b.object.plugins && a.object.index == b.object.index && a.object.node == b.object.node;
}

/// Adds the owners with holders that changed or changed their order: all except the common prefix and the common
/// suffix.
void add_changed_owners(const std::vector<codec::GpuHolder>& before, const std::vector<codec::GpuHolder>& now,
                        std::set<Owner>* changed) {
  const auto same = [](const codec::GpuHolder& a, const codec::GpuHolder& b) { return a.slice == b.slice; };
  const auto first = std::mismatch(before.begin(), before.end(), now.begin(), now.end(), same);
  const auto last = std::mismatch(before.rbegin(), std::reverse_iterator(first.first), now.rbegin(),
                                  std::reverse_iterator(first.second), same);
  for (auto at = first.first; at != last.first.base(); ++at) changed->insert(at->slice.owner);
  for (auto at = first.second; at != last.second.base(); ++at) changed->insert(at->slice.owner);
}

/// Adds the slices that `to` does not contain yet. A slice's identity is (part, card).
void add_slices(std::vector<Slice>* to, const std::vector<Slice>& more) {
  for (const Slice& slice : more) {
    if (std::none_of(to->begin(), to->end(),
                     [&](const Slice& one) { return one.part == slice.part && one.card == slice.card; }))
      to->push_back(slice);
  }
}

}  // namespace

bool NodeEntry::named(const Owner& owner) const {
  return std::any_of(gpus.begin(), gpus.end(), [&](const auto& gpu) {
    const auto& holders = gpu.second.object.holders;
    return std::any_of(holders.begin(), holders.end(),
                       [&](const codec::GpuHolder& holder) { return holder.slice.owner == owner; });
  });
}

/// Holders change often, the links between the cards do not.
void NodeEntry::put_gpu(const std::string& name, std::optional<GpuEntry> gpu) {
  const auto stored = gpus.find(name);
  if (gpu && stored != gpus.end()) {
    if (!same_links(stored->second.object, gpu->object)) links.reset();
    if (!links || !same_card(stored->second, *gpu)) rebuild = true;
    add_changed_owners(stored->second.object.holders, gpu->object.holders, &changed_owners);
    stored->second = std::move(*gpu);
    return;
  }
  links.reset();
  rebuild = true;
  if (gpu) {
    gpus[name] = std::move(*gpu);
  } else if (stored != gpus.end()) {
    gpus.erase(stored);
  }
}

namespace {

/// Whether a pod that requests by this name may be placed on a card of the node, by the cards' modes.
bool may_serve(const NodeEntry& entry, std::string_view name) {
  for (const auto* dialect : codec::dialects_with(name)) {
    for (const auto& one : dialect->names) {
      if (one.name != name || one.requested == codec::Requested::kAny) continue;
      const bool whole = one.requested == codec::Requested::kWholeCards;
      if (whole && codec::is_shared_by_rancher(entry.node.labels)) return true;
      return std::any_of(entry.gpus.begin(), entry.gpus.end(), [&](const auto& gpu) {
        const auto& object = gpu.second.object;
        return permits(entry.node.modes.of(object.card.id, static_cast<std::size_t>(object.index)), whole);
      });
    }
  }
  return false;
}

void close(std::string_view name, const std::string& why, std::map<std::string, std::string>* closed) {
  for (const auto* dialect : codec::dialects_with(name)) closed->emplace(dialect->name, why);
}

}  // namespace

std::map<std::string, std::string> closed_to(const NodeEntry& entry) {
  std::map<std::string, std::string> closed;
  for (const auto& name : entry.node.of_others) {
    for (const auto* dialect : codec::dialects_with(name)) {
      closed.emplace(dialect->name,
                     fmt::format("another device plugin serves {} on the node (condition {}): no pod that requests "
                                 "cards in the {} spelling is placed here until that plugin is gone",
                                 name, codec::kConflictingPlugin, dialect->name));
    }
  }
  for (const auto& name : entry.node.exhausted) {
    if (may_serve(entry, name))
      close(name, fmt::format("the kubelet has 0 {} until it knows the new mode of the cards", name), &closed);
  }
  return closed;
}

NodeParts parts_of(NodeEntry& entry) {
  NodeParts parts;
  parts.labels = entry.node.labels;
  if (entry.node.leaving) parts.closed = kAgentIsReplaced;
  parts.closed_to = closed_to(entry);
  if (!entry.links) entry.links = links_of(entry);
  parts.links = *entry.links;
  std::map<Owner, Booking> bookings;
  const auto booking = [&](const Owner& owner, std::uint64_t epoch) -> Booking& {
    Booking& one = bookings[owner];
    one.owner = owner;
    one.epoch = std::max(one.epoch, epoch);
    return one;
  };
  // Records come first. GPU objects add the slices that no record names (any more).
  for (const auto& [uid, pod] : entry.pods) {
    if (pod->holds()) add_slices(&booking(pod->owner(), pod->record->epoch).slices, slices_of(*pod->record));
  }
  for (const auto& [name, gpu] : entry.gpus) {
    parts.cards.push_back(card_of(gpu, entry));
    for (const auto& holder : gpu.object.holders) {
      Booking& one = booking(holder.slice.owner, 0);
      one.prepared = true;
      add_slices(&one.slices, {holder.slice});
    }
  }
  for (const auto& [owner, gone] : entry.lingering) add_slices(&booking(owner, gone.epoch).slices, gone.slices);
  for (const auto& [owner, room] : entry.reserved) {
    if (bookings.contains(owner)) continue;
    Booking& one = booking(owner, room.epoch);
    one.slices = room.slices;
    one.reserved = true;
  }
  for (auto& [owner, one] : bookings) parts.bookings.push_back(std::move(one));
  return parts;
}

namespace {

/// The booking that parts_of() creates for that owner.
Booking booking_of(const NodeEntry& entry, const Owner& owner) {
  Booking one{owner, {}};
  const auto pod = owner.kind == OwnerKind::kPod ? entry.pods.find(owner.uid) : entry.pods.end();
  bool booked = pod != entry.pods.end() && pod->second->holds();
  if (booked) add_slices(&one.slices, slices_of(*pod->second->record));
  for (const auto& [name, gpu] : entry.gpus) {
    for (const auto& holder : gpu.object.holders) {
      if (holder.slice.owner != owner) continue;
      booked = true;
      add_slices(&one.slices, {holder.slice});
    }
  }
  if (const auto gone = entry.lingering.find(owner); gone != entry.lingering.end()) {
    booked = true;
    add_slices(&one.slices, gone->second.slices);
  }
  if (const auto room = entry.reserved.find(owner); !booked && room != entry.reserved.end()) {
    one.slices = room->second.slices;
    one.reserved = true;
  }
  return one;
}

/// entry.assembled with the changed bookings. While all bookings fit, their order makes no difference.
/// nullopt: a booking does not fit, or more than bookings changed.
std::optional<NodeState> updated_state(const NodeEntry& entry) {
  if (entry.rebuild || !entry.assembled) return std::nullopt;
  NodeState state = *entry.assembled;
  std::vector<Slice> added;
  for (const Owner& owner : entry.changed_owners) {
    (void)state.ledger.remove_owner(owner);
    std::erase(state.reserved, owner);
    const auto booking = booking_of(entry, owner);
    added.insert(added.end(), booking.slices.begin(), booking.slices.end());
    if (booking.reserved)
      state.reserved.insert(std::lower_bound(state.reserved.begin(), state.reserved.end(), owner), owner);
  }
  if (!state.ledger.add(added, Ledger::Admission::kRestored)) return std::nullopt;
  return state;
}

}  // namespace

AssembledNode assemble_node(NodeEntry& entry) {
  AssembledNode result;
  auto state = updated_state(entry);
  if (!state) {
    auto all = assemble(parts_of(entry));
    state = std::move(all.state);
    result.conflicts = std::move(all.conflicts);
  }
  state->reservations.clear();
  for (const auto& [owner, kept] : entry.kept) state->reservations.push_back(kept.reservation);
  result.state = std::make_shared<const NodeState>(std::move(*state));
  entry.assembled = result.conflicts.empty() ? result.state : nullptr;
  entry.changed_owners.clear();
  entry.rebuild = false;
  return result;
}

std::vector<Conflict> invalid_records(const NodeEntry& entry) {
  std::vector<Conflict> invalid;
  for (const auto& [uid, pod] : entry.pods) {
    if (!pod->record_error.empty() && !pod->object.ended) invalid.push_back({pod->owner(), {}, pod->record_error});
  }
  return invalid;
}

}  // namespace carve::control
