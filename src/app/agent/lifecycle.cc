#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "app/agent/agent.h"

// The begin and end of slices. Everything here runs under commit_.
namespace carve {
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

std::string Agent::new_id(bool keep) {
  return fmt::format("{}-{:06x}-{}", keep ? "dev" : "run", run_number_ & 0xFFFFFFU, next_number_++);
}

std::string Agent::slice_folder_of(const LiveSlice& slice) const {
  const std::string folder = config_.slices_folder + "/" + slice.id;
  return slice.gated ? folder + "/" + slice.id : folder;
}

PageOrder Agent::order_of(const LiveSlice& slice) const {
  PageOrder order;
  order.id = slice.id;
  order.gated = slice.gated;
  order.slices = slice.slices;
  for (const auto& card : slice.slices) {
    const CardState* state = ledger_.find(card.card);
    order.context_bytes.push_back(context_bytes(state != nullptr ? state->card.model : std::string()));
  }
  return order;
}

SliceDevice Agent::device_of(const LiveSlice& slice) const {
  SliceDevice device;
  device.id = slice.id;
  device.whole = slice.whole();
  for (const auto& card : slice.slices) {
    const CardState* state = ledger_.find(card.card);
    if (state != nullptr && state->card.minor >= 0) device.minors.push_back(state->card.minor);
  }
  device.slice_folder = slice.whole() ? config_.whole_folder + "/" + slice.id : slice_folder_of(slice);
  if (slice.gated) device.gate = config_.slices_folder + "/" + slice.id;
  device.user = slice.uid;
  if (world_.card_files != nullptr) device.card_files = world_.card_files->folder_of(slice.id);
  device.library_folder = config_.library_folder;
  device.driver_version = inventory_.driver_version;
  device.driver = inventory_.files;
  device.driver_mounts = config_.driver_mounts;
  device.environment = slice.environment;
  return device;
}

Grant Agent::grant_of(const LiveSlice& slice) const {
  Grant grant;
  grant.slice = slice.id;
  grant.whole = slice.whole();
  if (!grant.whole) grant.slice_folder = slice_folder_of(slice);
  grant.library_folder = config_.library_folder;
  grant.runtime_folder = config_.runtime_folder;
  grant.driver_version = inventory_.driver_version;
  grant.driver = inventory_.files;
  grant.masking_socket = config_.masking_socket;
  if (world_.card_files != nullptr) grant.card_files = world_.card_files->folder_of(slice.id);
  if (slice.keep) grant.device = "carve.elasticgpu.io/slice=" + slice.id;
  for (const auto& card : slice.slices) {
    const CardState* state = ledger_.find(card.card);
    if (state == nullptr) continue;
    grant.cards.push_back({card.card, state->card.model, state->card.minor, card.memory, card.compute});
  }
  for (const auto& state : ledger_.cards()) {
    const bool own = slice.card_index(state.card.id).has_value();
    if (!own && state.card.minor >= 0) grant.hidden_minors.push_back(state.card.minor);
  }
  return grant;
}

Result<Grant> Agent::try_allocate(const Caller& caller, const AllocateRequest& request) {
  if (!config_.gives_cards) {
    return fail(Code::kFailedPrecondition,
                "this node's cards are given by Kubernetes: ask with a Pod, or run `carve up` on another machine");
  }
  CARVE_TRY(const PolicyRow* policy, policy_named(request.policy));
  if (!request.keep && world_.cgroups == nullptr) return fail(Code::kUnavailable, world_.cgroup_error);
  LiveSlice slice;
  std::vector<Slice> slices;
  {
    const std::lock_guard lock(state_);
    if (!request.request.whole && !library_error().empty()) {
      return fail(Code::kFailedPrecondition, "no fractions can be given: " + library_error());
    }
    const auto living = static_cast<std::uint32_t>(std::count_if(
        slices_.begin(), slices_.end(), [&](const auto& s) { return s.second.uid == caller.uid; }));
    CARVE_TRY_VOID(check_access(config_.access, caller, request.request, living));
    if (ledger_.cards().empty()) {
      return fail(Code::kUnavailable, std::string("no card on this machine: NVML is ") +
                                          to_string(world_.gpu.state()) + " (" + world_.gpu.reason() + ")");
    }
    slice.id = new_id(request.keep);
    slice.holder = {OwnerKind::kLocal, slice.id};
    slice.keep = request.keep;
    // `carve run` mounts its slice's folder as its caller, by its path, and the slice's cgroup decides which processes
    // may join. An engine's container has no cgroup of Carve: every process that reaches its socket belongs to it, so
    // only the engine's mount may lead to the socket. On a Kubernetes node only root can pass the folder of all slices,
    // so no outer folder is needed.
    slice.gated = config_.gives_cards && request.keep && !request.request.whole;
    slice.uid = caller.uid;
    if (!request.keep) slice.asker_gone = caller.gone;
    slice.name = plain_name(request.name);
    slice.made = world_.clock.now();
    const std::uint32_t kept_back = caller.uid == 0 ? 0 : config_.slices_for_root;
    CARVE_TRY(const auto placed, place(ledger_, inventory_.links, request.request, *policy, kept_back));
    slices = slices_for(slice.owner(), slice.part, request.request, placed);
    CARVE_TRY_VOID(ledger_.add(slices));
    slice.slices = slices;
  }
  CARVE_TRY(const auto record, record_of(0, slices));
  auto written = world_.journal.append({PutRecord{record}, PutNote{slice.id, note_of(slice)}});
  if (written) written = bring_up(slice);
  const std::lock_guard lock(state_);
  if (!written) {
    static_cast<void>(ledger_.remove(slice.owner(), slice.part));
    // If the record reached the journal, it must be removed.
    if (world_.journal.state().records.count(slice.owner()) != 0) pending_drops_.push_back(slice.owner());
    return tl::unexpected(written.error());
  }
  journal_error_.clear();
  const Grant grant = grant_of(slice);
  slices_.emplace(slice.id, std::move(slice));
  return grant;
}

Result<void> Agent::bring_up(LiveSlice& slice) {
  PageOrder order;
  SliceDevice device;
  {
    const std::lock_guard lock(state_);
    order = order_of(slice);
    device = device_of(slice);
  }
  Result<void> done;
  if (!slice.keep) done = world_.cgroups->create(slice.id);
  if (done && world_.card_files != nullptr) done = world_.card_files->give(slice.id, slice.uid, device.minors);
  if (done && !slice.whole()) {
    done = world_.pages.put(order);
    if (done) put_.insert(slice.id);
    if (done) keep_back(slice);
  }
  if (done && slice.keep) done = world_.devices.publish(device);
  if (!done) {
    world_.log.warn("slice could not be set up", {{"slice", slice.id}, {"error", done.error().what}});
    take_down(slice);
  }
  return done;
}

/// Before the first process of the slice runs; each round of watch() corrects it.
void Agent::keep_back(const LiveSlice& slice) {
  std::map<std::uint32_t, Bytes> kept;  // by index of the card
  {
    const std::lock_guard lock(state_);
    const std::vector<Bytes> spare = spare_of(slice);
    for (std::uint32_t i = 0; i < slice.slices.size(); ++i) {
      const CardState* state = ledger_.find(slice.slices[i].card);
      if (state == nullptr || state->use.slices < 2) continue;
      const Bytes part(spare[i].count() / state->use.slices);
      kept[i] = kept_back(part, slice.slices[i].memory, config_.bounds.tolerance);
    }
  }
  for (const auto& [index, bytes] : kept) {
    if (bytes != Bytes()) static_cast<void>(world_.pages.set_overhead(slice.id, index, bytes));
  }
}

void Agent::take_down(LiveSlice& slice) {
  // Each step may fail because another process is away. What stays is found and removed when that process is back.
  if (slice.keep) static_cast<void>(world_.devices.withdraw(slice.id));
  if (world_.card_files != nullptr) {
    if (auto gone = world_.card_files->withdraw(slice.id); !gone) {
      world_.log.warn("device files of a slice are not removed", {{"slice", slice.id}, {"error", gone.error().what}});
    }
  }
  if (!slice.whole()) {
    put_.erase(slice.id);
    if (auto dropped = world_.pages.drop(slice.id); !dropped) {
      world_.log.warn("pages stay until the arbiter is back",
                      {{"slice", slice.id}, {"error", dropped.error().what}});
    }
  }
  if (!slice.keep && world_.cgroups != nullptr) {
    if (auto removed = world_.cgroups->remove(slice.id); !removed) {
      world_.log.warn("cgroup stays", {{"slice", slice.id}, {"error", removed.error().what}});
    }
  }
}

void Agent::finish(const std::string& id, const std::string& why) {
  LiveSlice slice;
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(id);
    if (found == slices_.end()) return;
    slice = found->second;
  }
  // A device has ended only when the journal says so: after a restart there is no other source.
  if (slice.keep) {
    const auto dropped = world_.journal.append(events_without(slice));
    const std::lock_guard lock(state_);
    journal_error_ = dropped ? std::string() : dropped.error().what;
    if (!dropped) return;
  }
  take_down(slice);
  {
    const std::lock_guard lock(state_);
    static_cast<void>(ledger_.remove(slice.owner(), slice.part));
    slices_.erase(id);
    // After a restart its cgroup decides: the card is free even while the journal cannot be written.
    if (!slice.keep) pending_drops_.push_back(slice.owner());
  }
  retry_drops();
  freed_.notify_all();
  world_.log.info("slice ended", {{"slice", id}, {"why", why}});
}

void Agent::retry_drops() {
  std::vector<Owner> owners;
  {
    const std::lock_guard lock(state_);
    owners = pending_drops_;
  }
  if (owners.empty()) return;
  std::vector<JournalEvent> events;
  for (const auto& owner : owners) {
    if (world_.journal.state().records.count(owner) != 0) events.emplace_back(DropOwner{owner});
    if (world_.journal.state().notes.count(owner.uid) != 0) events.emplace_back(PutNote{owner.uid, ""});
  }
  const auto written = events.empty() ? Result<void>() : world_.journal.append(events);
  const std::lock_guard lock(state_);
  journal_error_ = written ? std::string() : written.error().what;
  if (written) pending_drops_.clear();
}

}  // namespace carve
