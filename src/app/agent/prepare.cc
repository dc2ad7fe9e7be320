#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <random>

#include "app/agent/agent.h"

// The calls of the kubelet interfaces. The decision was made elsewhere; this node carries it out, or returns the reason
// why it cannot.
namespace carve {
namespace {

constexpr char kDevicePrefix[] = "carve.elasticgpu.io/slice=";
constexpr char kDeviceCounter[] = "device";
// Names are reserved in the journal in this number, long before they are needed. It is more than a node has pods.
constexpr std::uint64_t kNamesPerSync = 1024;
constexpr std::uint64_t kNamesLow = 512;
constexpr std::size_t kMaxPods = 64;  // in a note

std::vector<std::string> pods_in(const PrepareRequest& request) {
  std::vector<std::string> pods;
  for (const auto& pod : request.pods) {
    if (valid_name(pod) && pods.size() < kMaxPods) pods.push_back(pod);
  }
  std::sort(pods.begin(), pods.end());
  pods.erase(std::unique(pods.begin(), pods.end()), pods.end());
  return pods;
}

/// Variables are separated by spaces and semicolons in a note, and are written unchanged to a CDI file.
bool valid_variables(const std::map<std::string, std::string>& variables) {
  const auto word = [](const std::string& text, std::string_view more) {
    return text.size() <= 1024 && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
             return (c < 0x80 && std::isalnum(c) != 0) || more.find(static_cast<char>(c)) != std::string_view::npos;
           });
  };
  return variables.size() <= 16 &&
         std::all_of(variables.begin(), variables.end(), [&](const auto& variable) {
           return !variable.first.empty() && variable.first != "NVIDIA_VISIBLE_DEVICES" &&
                  word(variable.first, "_") && word(variable.second, "_.:/-,");
         });
}

/// The request as a slice without a name.
///   errors  kInvalidArgument: no slice, slices of two owners or parts, a card twice, or a request that is not for this
///     node
Result<LiveSlice> slice_of(const PrepareRequest& request) {
  LiveSlice slice;
  if (request.slices.empty())
    return fail(Code::kInvalidArgument, "slices: none; a part holds at least one card");
  slice.holder = request.slices.front().owner;
  slice.part = request.slices.front().part;
  slice.keep = true;
  slice.name = plain_name(request.label);
  if (slice.local())
    return fail(Code::kInvalidArgument, "owner: a pod or a claim is prepared, local is not");
  for (const auto& held : request.slices) {
    if (held.owner != slice.holder || held.part != slice.part) {
      return fail(Code::kInvalidArgument,
                  "slices: of two owners or parts; each part is prepared by itself");
    }
  }
  CARVE_TRY(const auto record, record_of(request.epoch, request.slices));
  CARVE_TRY_VOID(joined(validate(record)));
  if (!valid_variables(request.environment)) {
    return fail(Code::kInvalidArgument,
                "environment: legal are at most 16 variables with keys of letters, digits and _ (not "
                "NVIDIA_VISIBLE_DEVICES) and values also with . : / - and commas");
  }
  slice.environment = request.environment;
  slice.epoch = request.epoch;
  slice.pods = pods_in(request);
  slice.slices = request.slices;
  std::sort(slice.slices.begin(), slice.slices.end(),
            [](const Slice& a, const Slice& b) { return a.card < b.card; });
  return slice;
}

}  // namespace

std::optional<std::string> Agent::take_name() {
  const std::lock_guard lock(names_);
  if (next_promise_ >= promised_until_) return std::nullopt;
  // The random number of this run keeps names unique even if the state folder was lost.
  return fmt::format("s-{:06x}-{}", run_number_ & 0xFFFFFFU, next_promise_++);
}

Result<void> Agent::set_names_aside() {
  {
    const std::lock_guard lock(names_);
    if (promised_until_ - next_promise_ >= kNamesLow) return {};
  }
  const auto& counters = world_.journal.state().counters;
  const auto found = counters.find(kDeviceCounter);
  const std::uint64_t base = found != counters.end() ? found->second : 0;
  CARVE_TRY_VOID(world_.journal.append({SetCounter{kDeviceCounter, base + kNamesPerSync}}));
  const std::lock_guard lock(names_);
  if (next_promise_ >= promised_until_) next_promise_ = base;
  promised_until_ = base + kNamesPerSync;
  return {};
}

Result<std::string> Agent::next_device_id() {
  if (auto name = take_name()) return *name;
  CARVE_TRY_VOID(set_names_aside());
  return *take_name();
}

Result<std::string> Agent::promise_device() {
  // Not under commit_: the kubelet admits one pod at a time, and a prepare may hang on a slow disk.
  if (const auto name = take_name()) return kDevicePrefix + *name;
  const std::lock_guard commit(commit_);
  if (const auto id = next_device_id()) return kDevicePrefix + *id;
  return kDevicePrefix + unwritten_name();
}

/// Used while the journal cannot be written. A pod that is refused here fails for good. For a pod with a name the
/// kubelet retries until its slice can be written. Only 48 random bits make the name unique.
std::string Agent::unwritten_name() {
  std::random_device random;
  return fmt::format("s-{:06x}{:06x}-0", random() & 0xFFFFFFU, random() & 0xFFFFFFU);
}

Result<std::string> Agent::device_id_for(const PrepareRequest& request) {
  if (request.device.empty()) return next_device_id();
  if (request.device.rfind(kDevicePrefix, 0) != 0) {
    return fail(Code::kInvalidArgument,
                "device: " + request.device + " was not promised by this agent");
  }
  return request.device.substr(sizeof(kDevicePrefix) - 1);
}

const LiveSlice* Agent::part_of(const Owner& owner, const std::string& part) const {
  for (const auto& [id, slice] : slices_) {
    if (slice.holder == owner && slice.part == part) return &slice;
  }
  return nullptr;
}

Result<Prepared> Agent::prepare(const PrepareRequest& request) {
  CARVE_TRY(auto wanted, slice_of(request));
  const std::lock_guard commit(commit_);
  std::optional<LiveSlice> there;
  {
    const std::lock_guard lock(state_);
    if (const LiveSlice* found = part_of(wanted.holder, wanted.part)) there = *found;
  }
  if (there && (request.device.empty() || request.device == kDevicePrefix + there->id)) {
    return prepare_again(*there, wanted);
  }
  if (there) {
    // The kubelet has another name for this part: it lost the first one, for example in a reboot.
    CARVE_TRY(const auto alive, holders_of({there->id}, pod_processes(), true));
    if (!alive.empty()) {
      return fail(Code::kFailedPrecondition,
                  fmt::format("part {}: process {} of the container before still runs", wanted.part,
                              *alive.begin()));
    }
    finish(there->id, "prepared under another name");
  }
  if (there && wanted.environment.empty()) wanted.environment = there->environment;
  if (there && wanted.epoch == 0) wanted.epoch = there->epoch;
  if (!there && request.standing) {
    return fail(Code::kNotFound, fmt::format("part {}: its slices have ended", wanted.part));
  }
  CARVE_TRY(wanted.id, device_id_for(request));
  return prepare_new(std::move(wanted));
}

Result<Prepared> Agent::prepare_again(const LiveSlice& there, const LiveSlice& wanted) {
  if (there.slices != wanted.slices) {
    return fail(
        Code::kAlreadyExists,
        fmt::format("part {} holds something else on this node (slice {}); it must end first",
                    there.part, there.id));
  }
  if (there.ending) {
    return fail(Code::kAborted,
                fmt::format("part {}: its slice {} is ending; try again", there.part, there.id));
  }
  // Not bring_up(): a failure here must not take down a slice that may be in use.
  SliceDevice device;
  PageOrder order;
  {
    const std::lock_guard lock(state_);
    device = device_of(there);
    order = order_of(there);
  }
  if (!there.whole() && put_.count(there.id) == 0) {
    CARVE_TRY_VOID(world_.pages.put(order));
    put_.insert(there.id);
  }
  CARVE_TRY_VOID(remember_pods(there.id, wanted.pods));
  CARVE_TRY_VOID(world_.devices.publish(device));
  return Prepared{kDevicePrefix + there.id};
}

/// Adds pods that came to share a claim later.
Result<void> Agent::remember_pods(const std::string& id, const std::vector<std::string>& pods) {
  LiveSlice slice;
  {
    const std::lock_guard lock(state_);
    slice = slices_.at(id);
  }
  std::set<std::string> all(slice.pods.begin(), slice.pods.end());
  for (const auto& pod : pods) {
    if (all.size() < kMaxPods) all.insert(pod);
  }
  if (all.size() == slice.pods.size()) return {};
  slice.pods.assign(all.begin(), all.end());
  CARVE_TRY_VOID(world_.journal.append({PutNote{id, note_of(slice)}}));
  const std::lock_guard lock(state_);
  slices_.at(id).pods = slice.pods;
  return {};
}

Result<Prepared> Agent::prepare_new(LiveSlice slice) {
  std::vector<Slice> all;  // of the owner: the new record replaces the previous one
  {
    const std::lock_guard lock(state_);
    if (slices_.count(slice.id) != 0) {
      return fail(Code::kAlreadyExists, "device: " + slice.id + " is another part's");
    }
    if (!slice.whole() && !library_error().empty()) {
      return fail(Code::kFailedPrecondition, "no fractions can be given: " + library_error());
    }
    for (const auto& held : slice.slices) {
      if (ledger_.find(held.card) == nullptr) {
        return fail(Code::kNotFound,
                    fmt::format("card {}: not on this node (the driver is {}: {})", held.card.str(),
                                to_string(world_.gpu.state()), world_.gpu.reason()));
      }
    }
    all = slices_beside(slice);
    CARVE_TRY_VOID(ledger_.add(slice.slices));
    slice.made = world_.clock.now();
  }
  all.insert(all.end(), slice.slices.begin(), slice.slices.end());
  Result<void> done;
  if (auto record = record_of(slice.epoch, all); !record) {
    done = tl::unexpected(record.error());
  } else {
    done = world_.journal.append({PutRecord{*record}, PutNote{slice.id, note_of(slice)}});
    if (done) done = bring_up(slice);
    if (!done && world_.journal.state().notes.count(slice.id) != 0) {
      // The slice is in the journal but does not exist. The entry is removed now, or at the next start.
      static_cast<void>(world_.journal.append(events_without(slice)));
    }
  }
  const std::lock_guard lock(state_);
  if (!done) {
    static_cast<void>(ledger_.remove(slice.holder, slice.part));
    return tl::unexpected(done.error());
  }
  journal_error_.clear();
  Prepared prepared{kDevicePrefix + slice.id};
  slices_.emplace(slice.id, std::move(slice));
  return prepared;
}

std::vector<Slice> Agent::slices_beside(const LiveSlice& slice) const {
  std::vector<Slice> beside;
  for (const auto& [id, other] : slices_) {
    if (other.holder == slice.holder && id != slice.id) {
      beside.insert(beside.end(), other.slices.begin(), other.slices.end());
    }
  }
  return beside;
}

std::vector<JournalEvent> Agent::events_without(const LiveSlice& slice) const {
  std::vector<Slice> rest;
  {
    const std::lock_guard lock(state_);
    rest = slices_beside(slice);
  }
  std::vector<JournalEvent> events;
  if (const auto record = record_of(slice.epoch, rest); record) {
    events.emplace_back(PutRecord{*record});
  } else {
    events.emplace_back(DropOwner{slice.holder});
  }
  events.emplace_back(PutNote{slice.id, ""});
  return events;
}

std::vector<Slice> Agent::held() const {
  std::vector<Slice> held;
  const std::lock_guard lock(state_);
  for (const auto& [id, slice] : slices_) {
    if (!slice.local()) held.insert(held.end(), slice.slices.begin(), slice.slices.end());
  }
  return held;
}

std::vector<HeldSlice> Agent::holdings() const {
  std::vector<HeldSlice> all;
  const std::lock_guard lock(state_);
  for (const auto& [id, slice] : slices_) {
    for (const auto& one : slice.slices) all.push_back({one, slice.name, slice.ending});
  }
  return all;
}

NodeTroubles Agent::troubles() const {
  NodeTroubles troubles;
  troubles.gpu = world_.gpu.state();
  troubles.gpu_reason = world_.gpu.reason();
  const std::lock_guard lock(state_);
  troubles.library = library_error();
  if (arbiter_asked_ && !arbiter_ok_)
    troubles.arbiter = arbiter_error_.empty() ? "it does not answer" : arbiter_error_;
  troubles.journal = journal_error_;
  return troubles;
}

GpuInventory Agent::cards() const {
  const std::lock_guard lock(state_);
  GpuInventory seen = inventory_;
  for (const auto& state : ledger_.cards()) {
    const auto known = std::find_if(seen.cards.begin(), seen.cards.end(),
                                    [&](const Card& card) { return card.id == state.card.id; });
    if (known != seen.cards.end()) {
      known->health = state.card.health;
      continue;
    }
    if (books_.stand_ins.count(state.card.id) != 0) continue;  // its data is unknown, so it cannot be offered
    seen.cards.push_back(state.card);
    seen.pci_bus_ids.emplace_back();
  }
  return seen;
}

}  // namespace carve
