#include "app/agent/slice_lifecycle.h"

#include <algorithm>
#include <array>
#include <map>

namespace carve::agent {
namespace {

/// The memory that one context costs in the driver. It is charged in advance, and the watchdog corrects it by NVML
/// within a second. Rounded from nvidia-smi outputs after a first cuCtxCreate; one row per architecture name in the
/// model.
struct ContextRow {
  const char* model;
  Bytes bytes;
};
constexpr std::array<ContextRow, 7> kContextBytes = {{{"H200", Bytes::mib(520)},
                                                      {"H100", Bytes::mib(520)},
                                                      {"A100", Bytes::mib(420)},
                                                      {"A10", Bytes::mib(260)},
                                                      {"L40", Bytes::mib(400)},
                                                      {"V100", Bytes::mib(300)},
                                                      {"T4", Bytes::mib(160)}}};
constexpr Bytes kContextDefault = Bytes::mib(300);

Bytes context_bytes(const std::string& model) {
  for (const auto& row : kContextBytes) {
    if (model_matches(model, row.model)) return row.bytes;
  }
  return kContextDefault;
}

}  // namespace

std::string SliceLifecycle::slice_folder_of(const LiveSlice& slice) const {
  const std::string folder = config_.slices_folder + "/" + slice.id;
  return slice.in_private_folder ? folder + "/" + slice.id : folder;
}

PageOrder SliceLifecycle::order_of(const LiveSlice& slice) const {
  PageOrder order;
  order.id = slice.id;
  order.in_private_folder = slice.in_private_folder;
  const SharePolicies policies = this->policies().value_or(SharePolicies{});
  store_.read([&](const SliceStore::State& state) {
    std::vector<Slice> all = state.slices.contains(slice.id) ? std::vector<Slice>() : slice.slices;
    for (const auto& [id, other] : state.slices) all.insert(all.end(), other.slices.begin(), other.slices.end());
    const ShareDivision division(policies, all);
    for (const auto& card : slice.slices) order.slices.push_back(division.enforced(card));
    for (const auto& card : slice.slices) {
      const CardState* found = state.ledger.find(card.card);
      order.context_bytes.push_back(context_bytes(found != nullptr ? found->card.model : std::string()));
    }
  });
  return order;
}

SliceDevice SliceLifecycle::device_of(const LiveSlice& slice) const {
  SliceDevice device;
  device.id = slice.id;
  device.whole = slice.whole();
  store_.read([&](const SliceStore::State& state) {
    for (const auto& card : slice.slices) {
      const CardState* found = state.ledger.find(card.card);
      if (found != nullptr && found->card.minor >= 0) device.minors.push_back(found->card.minor);
    }
  });
  device.slice_folder = slice.whole() ? config_.whole_folder + "/" + slice.id : slice_folder_of(slice);
  if (slice.in_private_folder) device.private_folder = config_.slices_folder + "/" + slice.id;
  device.user = slice.uid;
  if (world_.card_files != nullptr) device.card_files = world_.card_files->folder_of(slice.id);
  device.library_folder = config_.library_folder;
  const GpuInventory inventory = cards_.inventory();
  device.driver_version = inventory.driver_version;
  device.driver = inventory.files;
  device.driver_mounts = config_.driver_mounts;
  device.environment = slice.environment;
  return device;
}

Grant SliceLifecycle::grant_of(const LiveSlice& slice) const {
  Grant grant;
  grant.slice = slice.id;
  grant.whole = slice.whole();
  if (!grant.whole) grant.slice_folder = slice_folder_of(slice);
  grant.library_folder = config_.library_folder;
  grant.runtime_folder = config_.runtime_folder;
  const GpuInventory inventory = cards_.inventory();
  grant.driver_version = inventory.driver_version;
  grant.driver = inventory.files;
  grant.masking_socket = config_.masking_socket;
  if (world_.card_files != nullptr) grant.card_files = world_.card_files->folder_of(slice.id);
  if (slice.keep) grant.device = kDevicePrefix + slice.id;
  store_.read([&](const SliceStore::State& state) {
    for (const auto& card : slice.slices) {
      const CardState* found = state.ledger.find(card.card);
      if (found == nullptr) continue;
      grant.cards.push_back({card.card, found->card.model, found->card.minor, card.memory, card.compute});
    }
    for (const auto& one : state.ledger.cards()) {
      const bool own = slice.card_index(one.card.id).has_value();
      if (!own && one.card.minor >= 0) grant.hidden_minors.push_back(one.card.minor);
    }
  });
  return grant;
}

Result<void> SliceLifecycle::start(const OwnerTurns::Turn& turn, LiveSlice slice) {
  auto done = store_.record(turn, slice);
  const bool recorded = done.has_value();
  if (done) done = bring_up(slice);
  if (!done) {
    store_.cancel(turn, slice, recorded);
    return done;
  }
  store_.enter(turn, std::move(slice));
  return {};
}

Result<void> SliceLifecycle::bring_up(const LiveSlice& slice) {
  const SliceDevice device = device_of(slice);
  Result<void> done;
  if (!slice.keep) done = world_.cgroups->create(slice.id);
  if (done && world_.card_files != nullptr) done = world_.card_files->give(slice.id, slice.uid, device.minors);
  if (done && !slice.whole()) done = pages_.put(order_of(slice));
  if (done && !slice.whole()) keep_back(slice);
  if (done && slice.keep) done = world_.devices.publish(device);
  if (!done) {
    world_.log.warn("slice could not be set up", {{"slice", slice.id}, {"error", done.error().what}});
    take_down(slice);
  }
  return done;
}

/// Before the first process of the slice runs, as if no slice of its cards were above its limit; each round of the
/// second line corrects it.
void SliceLifecycle::keep_back(const LiveSlice& slice) {
  const auto kept = store_.read([&](const SliceStore::State& state) {
    std::map<std::uint32_t, Bytes> bytes;  // by index of the card
    const std::vector<Bytes> spare = spare_of(state.ledger, slice);
    for (std::uint32_t i = 0; i < slice.slices.size(); ++i) {
      const CardState* card = state.ledger.find(slice.slices[i].card);
      if (card == nullptr || card->use.slices == 0) continue;
      const std::vector<Bytes> excess(card->use.slices);
      const std::vector<Bytes> limits(card->use.slices, slice.slices[i].memory);
      bytes[i] = margins(spare[i], excess, limits, config_.bounds.tolerance).front().kept_back;
    }
    return bytes;
  });
  for (const auto& [index, bytes] : kept) {
    if (bytes != Bytes()) static_cast<void>(pages_.set_overhead(slice.id, index, bytes));
  }
}

void SliceLifecycle::take_down(const LiveSlice& slice) {
  // Each step may fail because another process is away. What stays is found and removed when that process is back.
  if (slice.keep) static_cast<void>(world_.devices.withdraw(slice.id));
  if (world_.card_files != nullptr) {
    if (auto gone = world_.card_files->withdraw(slice.id); !gone) {
      world_.log.warn("device files of a slice are not removed", {{"slice", slice.id}, {"error", gone.error().what}});
    }
  }
  if (!slice.whole()) {
    if (auto dropped = pages_.drop(slice.id); !dropped) {
      world_.log.warn("pages stay until the arbiter is back", {{"slice", slice.id}, {"error", dropped.error().what}});
    }
  }
  if (!slice.keep && world_.cgroups != nullptr) {
    if (auto removed = world_.cgroups->remove(slice.id); !removed) {
      world_.log.warn("cgroup stays", {{"slice", slice.id}, {"error", removed.error().what}});
    }
  }
}

Result<void> SliceLifecycle::finish(const OwnerTurns::Turn& turn, const std::string& id, const std::string& why) {
  const auto slice = store_.find(id);
  if (!slice) return {};
  // A device has ended only when the journal says so: after a restart there is no other source.
  if (slice->keep) CARVE_TRY_VOID(store_.forget(turn, *slice));
  take_down(*slice);
  // After a restart its cgroup decides: the card is free even while the journal cannot be written.
  store_.remove(turn, *slice, !slice->keep);
  auto written = store_.settle();
  world_.log.info("slice ended", {{"slice", id}, {"why", why}});
  return slice->keep ? Result<void>() : written;
}

Result<void> SliceLifecycle::request_pages(const OwnerTurns::Turn&, const LiveSlice& slice) {
  if (slice.whole() || pages_.requested(slice.id)) return {};
  return pages_.put(order_of(slice));
}

Result<void> SliceLifecycle::publish(const OwnerTurns::Turn&, const LiveSlice& slice) {
  return world_.devices.publish(device_of(slice));
}

/// Creates missing nodes of every living slice, also for cards with a device file that has appeared since.
void SliceLifecycle::give_card_files() {
  if (world_.card_files == nullptr) return;
  for (const auto& id : store_.ids_of([](const LiveSlice&) { return true; })) {
    const auto known = store_.find(id);
    if (!known) continue;
    const auto turn = turns_.take(known->holder);
    const auto slice = store_.find(id);
    if (!slice) continue;
    const SliceDevice device = device_of(*slice);
    if (auto given = world_.card_files->give(id, device.user, device.minors); !given) {
      world_.log.error("a slice lacks its device files", {{"slice", id}, {"error", given.error().what}});
    }
  }
}

void SliceLifecycle::publish_all() {
  give_card_files();
  if (!cards_.driver_known()) return;  // the paths of the driver's files are unknown yet
  for (const auto& id : store_.ids_of([](const LiveSlice& one) { return one.keep && !one.ending; })) {
    const auto known = store_.find(id);
    if (!known) continue;
    const auto turn = turns_.take(known->holder);
    // The slice may have ended since, and its device would not be withdrawn a second time.
    const auto slice = store_.find(id);
    if (!slice || slice->ending) continue;
    if (auto done = publish(turn, *slice); !done) {
      world_.log.error("device is not published", {{"slice", id}, {"error", done.error().what}});
    }
  }
}

void SliceLifecycle::divide_by(const SharePolicies& policies) {
  const MutexLock lock(mutex_);
  policies_ = policies;
}

std::optional<SharePolicies> SliceLifecycle::policies() const {
  const MutexLock lock(mutex_);
  return policies_;
}

/// The slices whose terms depend on the node's policies, by ID, as the arbiter must enforce them.
std::map<std::string, std::vector<Slice>> SliceLifecycle::divided() const {
  const auto by_node = [](const Slice& slice) { return slice.share == ShareClass::kNode; };
  const auto policies = this->policies();
  return store_.read([&](const SliceStore::State& state) {
    std::map<std::string, std::vector<Slice>> divided;
    std::vector<Slice> all;
    for (const auto& [id, slice] : state.slices) {
      if (slice.whole() || std::none_of(slice.slices.begin(), slice.slices.end(), by_node)) continue;
      divided[id] = slice.slices;
      all.insert(all.end(), slice.slices.begin(), slice.slices.end());
    }
    if (!policies || divided.empty()) return divided;
    const ShareDivision division(*policies, all);
    for (auto& [id, slices] : divided) {
      for (Slice& slice : slices) slice = division.enforced(slice);
    }
    return divided;
  });
}

void SliceLifecycle::reconcile(const std::vector<PageSlice>& present) {
  for (const auto& pages : present) {
    const auto slice = store_.find(pages.id);
    if (slice && !slice->whole()) continue;
    // A slice that starts has its name's turn, and is entered in the table before the turn ends.
    const auto turn = turns_.try_take(local_owner(pages.id));
    if (!turn) continue;
    const auto still = store_.find(pages.id);
    if (!still || still->whole()) static_cast<void>(pages_.drop(pages.id));
  }
  const bool policies_known = policies().has_value();
  const auto terms = divided();
  for (const auto& id : store_.ids_of([](const LiveSlice& one) { return !one.whole(); })) {
    // Remains do not count: put() re-creates the pages.
    const bool there =
        std::any_of(present.begin(), present.end(), [&](const auto& one) { return one.id == id && !one.remains; });
    const auto by_node = terms.find(id);
    if (there && by_node != terms.end() && !policies_known) continue;  // it keeps the terms of the earlier agent
    const bool right = by_node == terms.end() ? pages_.requested(id) : pages_.requested_as(id, by_node->second);
    if (!there || !right) reconcile_one(id, there);
  }
}

void SliceLifecycle::reconcile_one(const std::string& id, bool there) {
  const auto known = store_.find(id);
  if (!known) return;
  const auto turn = turns_.try_take(known->holder);
  if (!turn) return;
  const auto slice = store_.find(id);
  if (!slice) return;
  const PageOrder order = order_of(*slice);
  if (there && pages_.requested_as(id, order.slices)) return;
  const auto now = world_.clock.now();
  const bool again = there && pages_.requested(id);
  // Created while the list was read: the pages exist by now.
  const bool fresh = now - slice->made < std::chrono::seconds(1) && !slice->joined;
  if ((fresh && !again) || now < slice->revoked_until) return;
  // The arbiter keeps the pages that it has. The agent receives the duplicates that a restarted arbiter will need.
  const auto done = pages_.put(order);
  world_.log.info(again ? "compute changed by the node's policy" : "pages asked for again",
                  {{"slice", id}, {"ok", done.has_value()}});
}

Result<void> SliceLifecycle::remove_remains(EventLog& events) {
  if (world_.card_files != nullptr) {
    const auto ids = world_.card_files->list();
    for (const auto& id : ids ? *ids : std::vector<std::string>()) {
      if (!store_.find(id)) static_cast<void>(world_.card_files->withdraw(id));
    }
  }
  if (world_.cgroups != nullptr) CARVE_TRY_VOID(adopt_cgroups(events));
  const auto devices = world_.devices.list();
  for (const auto& id : devices ? *devices : std::vector<std::string>()) {
    const auto slice = store_.find(id);
    if (!slice || !slice->keep || slice->ending) static_cast<void>(world_.devices.withdraw(id));
  }
  return {};
}

/// Processes without a record would use a card that was not granted to them.
Result<void> SliceLifecycle::adopt_cgroups(EventLog& events) {
  CARVE_TRY(const auto groups, world_.cgroups->list());
  for (const auto& id : groups) {
    const auto populated = world_.cgroups->populated(id);
    const auto ran = world_.cgroups->has_run(id);
    // The cgroup is empty and no process has run in it: the agent ended after it created the cgroup and before the
    // process joined. The process may still join, within rejoin_time.
    const bool joined = (populated && *populated) || ran.value_or(true);
    if (store_.change(id, [&](LiveSlice& slice) { slice.joined = joined; })) {
      static_cast<void>(world_.cgroups->freeze(id, false));  // an earlier agent may have died while it throttled
      continue;
    }
    if (populated && *populated) {
      world_.log.error("processes in a cgroup of ours without a record are ended", {{"cgroup", id}});
      static_cast<void>(world_.cgroups->kill(id));
      events.note("no-record", id, "its processes had no record in the journal and were ended");
    }
    static_cast<void>(world_.cgroups->remove(id));
  }
  return {};
}

}  // namespace carve::agent
