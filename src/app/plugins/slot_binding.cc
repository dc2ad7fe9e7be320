#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/plugins/device_names.h"
#include "app/plugins/device_plugin.h"
#include "base/mutex.h"
#include "codec/dialects/projection.h"
#include "codec/record.h"

// From slots to slices: finds the pod of the slots, reads its record, and prepares the slices.
namespace carve::plugins {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kAskFirst = milliseconds(15);  // between two reads; PodResources allows a hundred a second
constexpr auto kAskMost = milliseconds(400);
constexpr auto kYoung = milliseconds(300);
constexpr auto kFileTells = seconds(2);   // after Allocate: by then the checkpoint names the pod, if it ever does
constexpr auto kForgotten = seconds(60);  // slots that no pod holds: the kubelet refused the pod for another reason

/// The cards with the indexes of the node's GPU objects.
std::vector<codec::CountedCard> counted(const GpuInventory& cards) {
  std::vector<codec::CountedCard> all;
  for (const auto& card : cards.cards) all.push_back({card.id, static_cast<int>(all.size()), card.memory});
  return all;
}

bool holds(const std::vector<Slice>& held, const Owner& owner, const std::string& part) {
  return std::any_of(held.begin(), held.end(),
                     [&](const Slice& slice) { return slice.owner == owner && slice.part == part; });
}

}  // namespace

std::vector<DevicePlugin::Binding> DevicePlugin::unready() const {
  const MutexLock lock(mutex_);
  std::vector<Binding> open;
  for (const auto& [device, binding] : bindings_) {
    if (!binding.ready) open.push_back(binding);
  }
  std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return a.since < b.since; });
  return open;
}

/// False: the binding is gone, because its pod has ended.
bool DevicePlugin::store(const Binding& binding) {
  const MutexLock lock(mutex_);
  const auto found = bindings_.find(binding.device);
  if (found == bindings_.end()) return false;
  const bool begun = found->second.begun;  // may have been set meanwhile
  const bool tried = found->second.tried;
  found->second = binding;
  found->second.begun = begun;
  found->second.tried = tried;
  return true;
}

/// Before the first prepare(): a call that waits longer than that for its answer gets a text that says so, and the end
/// of the pod finds the owner. A later try keeps the text of the one before.
void DevicePlugin::note_try(const Binding& binding) {
  const MutexLock lock(mutex_);
  const auto found = bindings_.find(binding.device);
  if (found == bindings_.end() || found->second.tried) return;
  auto& known = found->second;
  known.tried = true;
  known.owner = binding.owner;
  known.namespace_name = binding.namespace_name;
  known.pod = binding.pod;
  known.problem = {Code::kUnavailable, fmt::format("the slices of pod {}/{}, container {} are still being prepared",
                                                   known.namespace_name, known.pod,
                                                   known.container)};
}

/// Adds the containers of Allocate calls that a previous agent answered.
void DevicePlugin::adopt(const std::vector<SlotEntry>& entries) {
  for (const auto& entry : entries) {
    if (entry.cdi.size() != 1) continue;
    const MutexLock lock(mutex_);
    if (bindings_.contains(entry.cdi.front())) continue;
    Binding binding;
    binding.slots = sorted(entry.slots);
    binding.device = entry.cdi.front();
    binding.since = world_.clock.now();
    binding.kubelet_uid = entry.pod_uid;
    binding.container = entry.container;
    binding.begun = true;
    binding.problem = {Code::kUnavailable, "the pod is not known yet"};
    bindings_[binding.device] = std::move(binding);
  }
}

void DevicePlugin::restore() {
  const auto entries = world_.kubelet.checkpoint(kSlotResource);
  if (entries) {
    adopt(*entries);
    const MutexLock lock(mutex_);
    for (const auto& entry : *entries) in_checkpoint_.insert(entry.pod_uid);
  } else if (entries.error().code != Code::kNotFound) {
    world_.log.warn("the kubelet's checkpoint cannot be read", {{"error", entries.error().what}});
  }
  bind();
  refresh_list();
}

/// Whether an unidentified binding or container exists and the next read is due. `unknown_waiter`: a container
/// starts with slots that a previous agent allocated.
bool DevicePlugin::lookup_is_due(const std::vector<Binding>& open, bool* unknown_waiter) {
  const bool need = std::any_of(open.begin(), open.end(), [](const Binding& one) { return one.kubelet_uid.empty(); });
  {
    const MutexLock lock(mutex_);
    *unknown_waiter = std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) REQUIRES(mutex_) {
      return std::none_of(bindings_.begin(), bindings_.end(),
                          [&](const auto& entry) { return entry.second.slots == waiter.slots; });
    });
  }
  const auto now = world_.clock.now();
  if (!need && !*unknown_waiter) {
    lookup_pause_ = kAskFirst;
    next_lookup_ = now;
    return false;
  }
  if (now < next_lookup_) return false;
  // A young binding's container is being created right now. Older ones are looked up less often.
  const bool young = std::any_of(open.begin(), open.end(), [&](const Binding& one) {
    return one.kubelet_uid.empty() && now - one.since < kYoung;
  });
  lookup_pause_ = young ? Clock::Duration(kAskFirst) : std::min<Clock::Duration>(lookup_pause_ * 2, kAskMost);
  next_lookup_ = now + lookup_pause_;
  return true;
}

/// The entries of the kubelet's checkpoint, by the CDI name that Allocate returned.
std::map<std::string, SlotEntry> DevicePlugin::entries_by_name(const std::vector<SlotEntry>& entries) {
  std::map<std::string, SlotEntry> by_name;
  const MutexLock lock(mutex_);
  in_checkpoint_.clear();
  for (const auto& entry : entries) {
    in_checkpoint_.insert(entry.pod_uid);
    for (const auto& name : entry.cdi) by_name.insert_or_assign(name, entry);
  }
  return by_name;
}

/// Finds the pods of all unidentified bindings with one read. The checkpoint contains the CDI name that Allocate
/// returned, so it is exact. PodResources has pod names only, and no ordinary init containers. It is used only if the
/// checkpoint has no entry, and only for slots with a single unidentified binding.
void DevicePlugin::identify() {
  auto open = unready();
  bool unknown_waiter = false;
  if (!lookup_is_due(open, &unknown_waiter)) return;
  const auto now = world_.clock.now();
  const auto entries = world_.kubelet.checkpoint(kSlotResource);
  if (entries && unknown_waiter) adopt(*entries);
  const auto by_name = entries ? entries_by_name(*entries) : std::map<std::string, SlotEntry>();
  // The kubelet updates PodResources before it writes the checkpoint. With names only, a stale read could match another
  // pod of the same name. So a readable checkpoint has precedence for kFileTells.
  const auto by_holder = [&](const Binding& one) {
    return one.kubelet_uid.empty() && !by_name.contains(one.device) &&
           (!entries || now - one.since > kFileTells);
  };
  std::optional<std::vector<SlotHolder>> holders;
  if (std::any_of(open.begin(), open.end(), by_holder)) {
    if (auto asked = world_.kubelet.holders(kSlotResource)) holders = std::move(*asked);
  }
  for (auto& binding : open) {
    if (!binding.kubelet_uid.empty()) continue;
    if (const auto found = by_name.find(binding.device); found != by_name.end()) {
      binding.kubelet_uid = found->second.pod_uid;
      binding.container = found->second.container;
      binding.problem = {Code::kUnavailable,
                         fmt::format("pod {} is not known to this agent yet", binding.kubelet_uid)};
    } else if (holders && by_holder(binding) && !identify_by_holder(&binding, *holders) &&
               now - binding.since > kForgotten) {
      const MutexLock lock(mutex_);
      bindings_.erase(binding.device);
      continue;
    }
    store(binding);
    if (!binding.kubelet_uid.empty()) supersede(binding);
  }
}

/// Identifies a binding by PodResources, if the checkpoint has no entry. True: a pod holds these slots. The pod is
/// accepted only if it is unambiguous: these slots have one unidentified binding (counted after the list was read,
/// which shows only slots that were allocated before), one pod has that name, and the API server, read now, knows no
/// other.
bool DevicePlugin::identify_by_holder(Binding* binding, const std::vector<SlotHolder>& holders) {
  const SlotHolder* holder = nullptr;
  for (const auto& one : holders) {
    if (sorted(one.slots) == binding->slots) holder = &one;
  }
  if (holder == nullptr) return false;
  binding->problem = {Code::kUnavailable, fmt::format("pod {}/{} has these slots; its UID is not known yet",
                                                      holder->namespace_name, holder->pod)};
  bool alone = std::none_of(holders.begin(), holders.end(), [&](const SlotHolder& one) {
    return &one != holder && one.namespace_name == holder->namespace_name && one.pod == holder->pod &&
           one.container == holder->container;
  });
  {
    const MutexLock lock(mutex_);
    for (const auto& [device, other] : bindings_) {
      alone =
          alone && (device == binding->device || !other.kubelet_uid.empty() || other.slots != binding->slots);
    }
  }
  if (!alone || !world_.pods.ask(holder->namespace_name, holder->pod)) return true;
  if (const auto pod = world_.pods.by_name(holder->namespace_name, holder->pod)) {
    binding->kubelet_uid = pod->mirror.empty() ? pod->uid : pod->mirror;
    binding->container = holder->container;
  }
  return true;
}

/// The kubelet has allocated slots of another pod again. So that pod has ended, even if the API server does not show it
/// yet.
void DevicePlugin::supersede(const Binding& winner) {
  std::vector<Binding> over;
  {
    const MutexLock lock(mutex_);
    for (auto at = bindings_.begin(); at != bindings_.end();) {
      const auto& other = at->second;
      if (other.device != winner.device && !other.kubelet_uid.empty() &&
          other.kubelet_uid != winner.kubelet_uid && other.since <= winner.since &&
          overlap(other.slots, winner.slots)) {
        over.push_back(other);
        at = bindings_.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (const auto& binding : over) {
    clear_refusal(binding.slots);
    if (!binding.owner.uid.empty()) end_later(binding.owner);
  }
}

Result<void> DevicePlugin::try_bind(Binding* binding) {
  const auto pod = world_.pods.by_uid(binding->kubelet_uid);
  if (pod) {
    binding->namespace_name = pod->namespace_name;
    binding->pod = pod->name;
  }
  // Slices that are held already are what was decided. They need no API server.
  const Owner owner{OwnerKind::kPod, pod ? pod->uid : binding->kubelet_uid};
  if (holds(world_.slices.held(), owner, binding->container)) {
    binding->owner = owner;
    return prepare(binding, PrepareRequest{.record = {.owner = owner}, .existing_only = true});
  }
  if (!pod) {
    return fail(Code::kUnavailable,
                fmt::format("the API server has not reported pod {} yet", binding->kubelet_uid));
  }
  const auto name = pod->namespace_name + "/" + pod->name;
  if (pod->ended) return fail(Code::kFailedPrecondition, fmt::format("pod {} has ended", name));
  if (pod->record.empty()) {
    return fail(
        Code::kNotFound,
        fmt::format("pod {} has no record (annotation {}): control has not chosen its cards; a pod that requests {} "
                    "needs Carve's scheduler, or `carve control` if it has a node already",
                    name, codec::kRecordAnnotation, kSlotResource));
  }
  const auto record = codec::decode_record(pod->record);
  if (!record) return fail_in("pod " + name, record.error());
  if (record->owner != owner) {
    return fail(Code::kAborted, fmt::format("pod {}: its record is for {} {}, but the pod's UID is {}", name,
                                            to_string(record->owner.kind), record->owner.uid, pod->uid));
  }
  const auto* part = part_named(*record, binding->container);
  if (part == nullptr) {
    return fail(Code::kNotFound,
                fmt::format("pod {}: its record has no cards for container {}", name, binding->container));
  }
  const auto& claimed = pod->by_elastic_claim;
  const bool by_claim = std::find(claimed.begin(), claimed.end(), binding->container) != claimed.end();
  if (binding->slots.size() != (by_claim ? 1 : part->cards.size())) {
    return fail(Code::kInvalidArgument,
                fmt::format("pod {}, container {}: {} slots, but its record names {} cards; legal is one "
                            "slot per card, and one slot with an ElasticGPUClaim",
                            name, binding->container, binding->slots.size(), part->cards.size()));
  }
  const auto cards = world_.slices.cards();
  CARVE_TRY_VOID(check_health(*part, cards));
  binding->owner = owner;
  return prepare(binding, PrepareRequest{.record = *record,
                                         .environment = codec::environment(*record, binding->container,
                                                                           counted(cards), world_.dialects)});
}

/// Prepares the container's slices. `request` has the decision; the binding has the rest.
Result<void> DevicePlugin::prepare(Binding* binding, PrepareRequest request) {
  request.part = binding->container;
  request.device = binding->device;
  request.label = fmt::format("{}/{}/{}", binding->namespace_name, binding->pod, binding->container);
  request.pods = {binding->kubelet_uid};
  note_try(*binding);
  const auto prepared = world_.slices.prepare(request);
  if (!prepared) return tl::unexpected(prepared.error());
  {
    // The kubelet allocates nothing for a pod that has ended. An end that was decided later stays decided.
    const MutexLock lock(mutex_);
    const auto ending = ending_.find(binding->owner);
    if (ending != ending_.end() && ending->second.since < binding->since) ending_.erase(ending);
  }
  if (prepared->device != binding->device)
    return fail(Code::kInternal, fmt::format("{} has another CDI name, {}", request.label, prepared->device));
  return {};
}

}  // namespace carve::plugins
