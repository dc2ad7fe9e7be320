#include "app/agent/prepared_slices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

namespace carve::agent {
namespace {

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

/// Variables are written unchanged to a CDI file, and an agent of an earlier release must be able to read them in a
/// note.
bool valid_variables(const std::map<std::string, std::string>& variables) {
  const auto word = [](const std::string& text, std::string_view more) {
    return text.size() <= 1024 && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
             return (c < 0x80 && std::isalnum(c) != 0) || more.find(static_cast<char>(c)) != std::string_view::npos;
           });
  };
  return variables.size() <= 16 && std::all_of(variables.begin(), variables.end(), [&](const auto& variable) {
           return !variable.first.empty() && variable.first != "NVIDIA_VISIBLE_DEVICES" && word(variable.first, "_") &&
                  word(variable.second, "_.:/-,");
         });
}

/// The request as a slice without a name: the one place in which a part of a decision becomes slices of this node.
///   errors  kInvalidArgument: an illegal record, or one without this part; illegal variables
Result<LiveSlice> slice_of(const PrepareRequest& request) {
  LiveSlice slice;
  slice.holder = request.record.owner;
  slice.part = request.part;
  slice.keep = true;
  slice.name = plain_name(request.label);
  if (slice.local()) return fail(Code::kInvalidArgument, "owner: must be a pod or a claim, not local");
  if (!valid_variables(request.environment)) {
    return fail(Code::kInvalidArgument,
                "environment: at most 16 variables; keys may contain letters, digits and _ (but not be "
                "NVIDIA_VISIBLE_DEVICES), values also . : / - and commas");
  }
  slice.environment = request.environment;
  slice.epoch = request.record.epoch;
  slice.pods = pods_in(request);
  if (request.existing_only) return slice;  // prepare() adds the slices that the part holds
  CARVE_TRY_VOID(joined(validate(request.record)));
  const RecordPart* part = part_named(request.record, request.part);
  if (part == nullptr) return fail(Code::kInvalidArgument, fmt::format("part {}: not in the record", request.part));
  slice.slices = slices_of(slice.holder, *part);
  std::sort(slice.slices.begin(), slice.slices.end(), [](const Slice& a, const Slice& b) { return a.card < b.card; });
  return slice;
}

/// The slices of a part, if they can be reserved now, apart from the ledger's own checks.
Result<std::vector<Slice>> reservable(const SliceStore::State& state, const LiveSlice& slice, const Gpu& gpu,
                                      const std::string& library_error) {
  if (state.slices.count(slice.id) != 0) {
    return fail(Code::kAlreadyExists, "device: " + slice.id + " belongs to another part");
  }
  if (!slice.whole() && !library_error.empty()) {
    return fail(Code::kFailedPrecondition, "no fractions can be granted: " + library_error);
  }
  for (const auto& held : slice.slices) {
    if (state.ledger.find(held.card) == nullptr) {
      return fail(Code::kNotFound, fmt::format("card {}: not on this node (the driver is {}: {})", held.card.str(),
                                               to_string(gpu.state()), gpu.reason()));
    }
  }
  return slice.slices;
}

}  // namespace

std::string PreparedSlices::promise_device() {
  // The kubelet admits one pod at a time, so this call waits for the disk only if no reserved name is left.
  const auto name = names_.next_device();
  return kDevicePrefix + name.value_or(SliceNames::unwritten());
}

Result<std::string> PreparedSlices::device_id_for(const PrepareRequest& request) {
  if (request.device.empty()) return names_.next_device();
  if (request.device.rfind(kDevicePrefix, 0) != 0) {
    return fail(Code::kInvalidArgument, "device: " + request.device + " was not promised by this agent");
  }
  return request.device.substr(sizeof(kDevicePrefix) - 1);
}

std::optional<LiveSlice> PreparedSlices::part_of(const Owner& owner, const std::string& part) const {
  return store_.read([&](const SliceStore::State& state) -> std::optional<LiveSlice> {
    for (const auto& [id, slice] : state.slices) {
      if (slice.holder == owner && slice.part == part) return slice;
    }
    return std::nullopt;
  });
}

Result<Prepared> PreparedSlices::prepare(const PrepareRequest& request) {
  CARVE_TRY(auto wanted, slice_of(request));
  const auto turn = turns_.take(wanted.holder);
  const auto there = part_of(wanted.holder, wanted.part);
  if (request.existing_only) {
    if (!there) return fail(Code::kNotFound, fmt::format("part {}: its slices have ended", wanted.part));
    wanted.slices = there->slices;
  }
  if (there && (request.device.empty() || request.device == kDevicePrefix + there->id)) {
    return prepare_again(turn, *there, wanted);
  }
  if (there) {
    // The kubelet has another name for this part: it lost the first one, for example in a reboot.
    CARVE_TRY(const auto alive, processes_.holders_of({there->id}, processes_.pod_processes(), true));
    if (!alive.empty()) {
      return fail(Code::kFailedPrecondition,
                  fmt::format("part {}: process {} of the previous container still runs", wanted.part, *alive.begin()));
    }
    static_cast<void>(lifecycle_.finish(turn, there->id, "prepared under another name"));
  }
  if (there && wanted.environment.empty()) wanted.environment = there->environment;
  if (there && wanted.epoch == 0) wanted.epoch = there->epoch;
  CARVE_TRY(wanted.id, device_id_for(request));
  return prepare_new(turn, std::move(wanted));
}

Result<Prepared> PreparedSlices::prepare_again(const OwnerTurns::Turn& turn, const LiveSlice& there,
                                               const LiveSlice& wanted) {
  if (there.slices != wanted.slices) {
    return fail(
        Code::kAlreadyExists,
        fmt::format("part {} has other slices on this node (slice {}), which must end first", there.part, there.id));
  }
  if (there.ending) {
    return fail(Code::kAborted, fmt::format("part {}: its slice {} is ending; try again", there.part, there.id));
  }
  // Does not call start(): a failure here must not take down a slice that may be in use.
  CARVE_TRY_VOID(lifecycle_.request_pages(turn, there));
  CARVE_TRY_VOID(remember_pods(turn, there, wanted.pods));
  CARVE_TRY_VOID(lifecycle_.publish(turn, there));
  return Prepared{kDevicePrefix + there.id};
}

/// Adds pods that began to share a claim later.
Result<void> PreparedSlices::remember_pods(const OwnerTurns::Turn& turn, const LiveSlice& there,
                                           const std::vector<std::string>& pods) {
  std::set<std::string> all(there.pods.begin(), there.pods.end());
  for (const auto& pod : pods) {
    if (all.size() < kMaxPods) all.insert(pod);
  }
  if (all.size() == there.pods.size()) return {};
  LiveSlice slice = there;
  slice.pods.assign(all.begin(), all.end());
  CARVE_TRY_VOID(store_.note(turn, {slice}));
  store_.change(there.id, [&](LiveSlice& known) { known.pods = slice.pods; });
  return {};
}

Result<Prepared> PreparedSlices::prepare_new(const OwnerTurns::Turn& turn, LiveSlice slice) {
  const std::string id = slice.id;
  // An earlier attempt may have left pages with this name. The watch thread must not remove the new ones.
  const auto name = turns_.take(local_owner(id));
  const std::string library_error = links_.error();
  CARVE_TRY(const auto reserved, store_.reserve(turn, slice, [&](const SliceStore::State& state) {
    return reservable(state, slice, world_.gpu, library_error);
  }));
  static_cast<void>(reserved);
  slice.made = world_.clock.now();
  CARVE_TRY_VOID(lifecycle_.start(turn, std::move(slice)));
  return Prepared{kDevicePrefix + id};
}

}  // namespace carve::agent
