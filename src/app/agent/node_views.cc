#include "app/agent/node_views.h"

#include <algorithm>
#include <map>
#include <set>

namespace carve::agent {
namespace {

/// The name is read later, without a lock: see name_processes().
ProcessView process_view(std::int32_t pid) {
  ProcessView view;
  view.pid = pid;
  return view;
}

void name_processes(const Processes& processes, std::vector<ProcessView>* views) {
  for (auto& view : *views) view.command = plain_name(processes.command(view.pid));
}

/// Every process of the slice: on a card (one line per card), registered, or only a member of its cgroup.
std::vector<ProcessView> processes_of(const LiveSlice& slice, const std::vector<Sighting>& sightings) {
  std::vector<ProcessView> views;
  const std::set<std::int32_t> registered(slice.registered.begin(), slice.registered.end());
  std::set<std::int32_t> shown;
  for (const auto& s : sightings) {
    if (s.slice != slice.id) continue;
    auto view = process_view(s.process.pid);
    view.card = s.card.str();
    view.memory = s.process.memory;
    view.sm_percent = s.process.sm_percent;
    view.registered = registered.count(s.process.pid) != 0;
    shown.insert(s.process.pid);
    views.push_back(std::move(view));
  }
  std::set<std::int32_t> rest = registered;
  rest.insert(slice.members.begin(), slice.members.end());
  for (const auto pid : rest) {
    if (shown.count(pid) != 0) continue;
    auto view = process_view(pid);
    view.registered = registered.count(pid) != 0;
    views.push_back(std::move(view));
  }
  return views;
}

SliceView slice_view(const LiveSlice& slice, const std::vector<Sighting>& sightings) {
  SliceView view;
  view.id = slice.id;
  view.kind = !slice.local() ? std::string(to_string(slice.holder.kind)) : slice.keep ? "device" : "run";
  view.name = slice.name;
  if (!slice.local()) view.owner = slice.holder.uid;
  view.uid = slice.uid;
  view.whole = slice.whole();
  view.share = slice.slices.front().share;
  view.priority = slice.slices.front().priority;
  view.ceiling = slice.slices.front().ceiling;
  view.state = !slice.remark.empty() ? slice.remark : slice.keep || slice.joined ? "running" : "starting";
  if (slice.ending) view.state = "ending";
  for (std::size_t i = 0; i < slice.slices.size(); ++i) {
    SliceCardView card;
    card.card = slice.slices[i].card.str();
    card.limit = slice.slices[i].memory;
    card.compute = slice.slices[i].compute;
    card.announced = i < slice.announced.size() ? slice.announced[i] : Bytes();
    card.rescues = i < slice.rescues.size() ? slice.rescues[i] : 0;
    if (i < slice.counters.size()) card.counters = slice.counters[i];
    card.delivered_percent = slice.delivered_percent(i);
    if (!slice.samples.empty() && i < slice.samples.back().busy_ns.size()) {
      card.busy_ns = slice.samples.back().busy_ns[i];
      card.busy_at_ns = slice.samples.back().at.time_since_epoch().count();
    }
    double sm = 0;
    for (const auto& s : sightings) {
      if (s.slice != slice.id || s.card != slice.slices[i].card) continue;
      if (s.process.memory != Bytes::max()) card.used += s.process.memory;
      sm += s.process.sm_percent;
    }
    // A whole card has no pages: the driver's samples are the only source.
    if (slice.whole()) card.delivered_percent = std::min(100.0, sm);
    view.cards.push_back(std::move(card));
  }
  view.processes = processes_of(slice, sightings);
  // An init container's slice stays until its pod ends, long after its process has ended.
  const bool init = !slice.local() && slice.slices.front().phase == Phase::kInit;
  if (init && view.state == "running" && view.processes.empty()) view.state = "idle";
  return view;
}

bool holds_sick_card(const Ledger& ledger, const LiveSlice& slice) {
  return std::any_of(slice.slices.begin(), slice.slices.end(), [&](const Slice& held) {
    const CardState* state = ledger.find(held.card);
    return state != nullptr && !state->card.health.ok;
  });
}

CardView card_view(const CardState& state, const GpuInventory& inventory, const SecondLine::Seen& seen) {
  CardView card;
  card.card = state.card;
  card.set_aside = state.use.memory;
  card.guaranteed = state.use.compute;
  card.exclusive = state.use.exclusive;
  for (std::size_t i = 0; i < inventory.cards.size() && i < inventory.pci_bus_ids.size(); ++i) {
    if (inventory.cards[i].id == state.card.id) card.pci_bus_id = inventory.pci_bus_ids[i];
  }
  for (const auto& usage : seen.usage) {
    if (usage.card != state.card.id) continue;
    card.used = usage.used;
    card.utilization_percent = usage.utilization_percent;
    card.temperature_c = usage.temperature_c;
    card.power_mw = usage.power_mw;
    card.sm_clock_mhz = usage.sm_clock_mhz;
    card.memory_clock_mhz = usage.memory_clock_mhz;
    card.memory_busy_percent = usage.memory_busy_percent;
    card.energy_mj = usage.energy_mj;
    card.activity = usage.activity;
  }
  return card;
}

/// The processes on the card that are in no slice.
std::vector<ProcessView> foreign_on(const CardId& card, const SliceStore::State& state,
                                    const std::vector<Sighting>& sightings) {
  std::vector<ProcessView> foreign;
  for (const auto& s : sightings) {
    if (s.card != card || state.slices.count(s.slice) != 0) continue;
    auto process = process_view(s.process.pid);
    process.card = s.card.str();
    process.memory = s.process.memory;
    process.sm_percent = s.process.sm_percent;
    foreign.push_back(std::move(process));
  }
  return foreign;
}

}  // namespace

AgentView NodeViews::view(const Caller& caller) const {
  AgentView view = of_last_round();
  for (auto& slice : view.slices) {
    const bool own = caller.uid == 0 || caller.uid == slice.uid;
    if (!own && slice.kind == "run") slice.name = program_in(slice.name);
  }
  for (auto& card : view.cards) name_processes(world_.processes, &card.foreign);
  for (auto& slice : view.slices) name_processes(world_.processes, &slice.processes);
  return view;
}

AgentView NodeViews::of_last_round() const {
  AgentView view;
  view.version = config_.version;
  view.page_abi = config_.page_abi;
  view.gpu_state = to_string(world_.gpu.state());
  view.gpu_reason = world_.gpu.reason();
  view.cgroup_error = world_.cgroup_error;
  if (const CardFiles* files = world_.card_files) {
    view.own_devices = true;
    view.device_mode = files->mode();
    view.device_group = files->group();
  }
  const auto arbiter = parts_.pages.state();
  view.arbiter_state = arbiter.ok ? "ok" : arbiter.code == Code::kDeadlineExceeded ? "stopped" : "away";
  view.arbiter_reason = arbiter.error;
  view.journal_error = parts_.store.journal_error();
  view.device_error = parts_.card_files.error();
  view.library_folder = config_.library_folder;
  view.state_folder = config_.state_folder;
  view.device_folder = config_.device_folder;
  view.library_error = parts_.links.error();
  view.share_policies = parts_.lifecycle.policies().value_or(SharePolicies{});
  view.waiting = parts_.local.waiting();
  const GpuInventory inventory = parts_.cards.inventory();
  view.driver_version = inventory.driver_version;
  view.cuda_version = inventory.cuda_version;
  auto xids = parts_.cards.xids();
  const auto seen = parts_.second_line.seen();
  parts_.store.read([&](const SliceStore::State& state) {
    for (const auto& one : state.ledger.cards()) {
      view.cards.push_back(card_view(one, inventory, seen));
      view.cards.back().foreign = foreign_on(one.card.id, state, seen.sightings);
      if (const auto found = xids.find(one.card.id); found != xids.end()) {
        view.cards.back().remark = std::move(found->second.remark);
        view.cards.back().xids = std::move(found->second.counts);
        view.cards.back().last_xid = found->second.last;
      }
    }
    for (const auto& [id, slice] : state.slices) {
      view.slices.push_back(slice_view(slice, seen.sightings));
      if (holds_sick_card(state.ledger, slice)) view.slices.back().state += ", card unhealthy";
    }
  });
  view.events = parts_.events.events();
  return view;
}

std::vector<Slice> NodeViews::held() const {
  return parts_.store.read([](const SliceStore::State& state) {
    std::vector<Slice> held;
    for (const auto& [id, slice] : state.slices) {
      if (!slice.local()) held.insert(held.end(), slice.slices.begin(), slice.slices.end());
    }
    return held;
  });
}

std::vector<HeldSlice> NodeViews::holdings() const {
  return parts_.store.read([](const SliceStore::State& state) {
    std::vector<HeldSlice> all;
    for (const auto& [id, slice] : state.slices) {
      for (const auto& one : slice.slices) all.push_back({one, slice.name, slice.ending});
    }
    return all;
  });
}

NodeTroubles NodeViews::troubles() const {
  NodeTroubles troubles;
  troubles.gpu = world_.gpu.state();
  troubles.gpu_reason = world_.gpu.reason();
  troubles.gpu_passing = !parts_.cards.driver_is_away();
  troubles.library = parts_.links.error();
  const auto arbiter = parts_.pages.state();
  if (arbiter.asked && !arbiter.ok) troubles.arbiter = arbiter.error.empty() ? "it does not answer" : arbiter.error;
  troubles.journal = parts_.store.journal_error();
  return troubles;
}

}  // namespace carve::agent
