// Event sets and field values. Each event set has its own connection to the driver's kernel side, as a real one has its
// own descriptor. It waits there and receives the events that occur after its creation.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "sim/nvml/call.h"
#include "sim/protocol/client.h"

namespace carve::sim::nvml {
namespace {

// Corrected, uncorrected, performance state, XID, clock, recovery action. Only XIDs occur.
constexpr unsigned long long kXidType = 0x8;
constexpr unsigned long long kEventTypes = 0x1 | 0x2 | 0x4 | kXidType | 0x10 | 0x8000;

struct EventSet {
  EventSet() : freed(eventfd(0, EFD_CLOEXEC)) {}
  EventSet(const EventSet&) = delete;
  EventSet& operator=(const EventSet&) = delete;
  ~EventSet() { ::close(freed); }
  Connection connection;
  const int freed;                                     // readable when the set has been freed
  std::map<std::uint32_t, unsigned long long> wanted;  // by the card's minor number; under Events::mutex
};

struct Events {
  Mutex mutex;
  // Shared with the threads that wait: freeing a set wakes them safely.
  std::map<EventSet*, std::shared_ptr<EventSet>> sets GUARDED_BY(mutex);
};
Events& events() {
  static Events* all = new Events;  // like the library: outlives static destructors
  return *all;
}

std::shared_ptr<EventSet> find_set(EventSet* set) {
  const MutexLock lock(events().mutex);
  const auto found = events().sets.find(set);
  return found == events().sets.end() ? nullptr : found->second;
}

/// The handle of the card when this set is registered for its XIDs; otherwise nullptr.
Device wanting(const EventSet& set, std::uint32_t minor) {
  {
    const MutexLock lock(events().mutex);
    const auto found = set.wanted.find(minor);
    if (found == set.wanted.end() || (found->second & kXidType) == 0) return nullptr;
  }
  Library& lib = library();
  const MutexLock lock(lib.mutex);
  for (unsigned i = 0; i < lib.visible; ++i)
    if (lib.handles[i].minor == minor) return &lib.handles[i];
  return nullptr;
}

int left_ms(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

/// Every call sends a request to the driver, so that it hangs when the driver hangs.
Return initialised() {
  return on_library([](Session& session) -> Return {
    if (session.cards().empty()) return kSuccess;
    const Return r = session.state(session.cards().front());
    return r == kGpuIsLost ? kSuccess : r;
  });
}

Return wait(EventSet* handle, EventData* out, unsigned timeout_ms) {
  if (Return r = initialised(); r != kSuccess) return r;
  const std::shared_ptr<EventSet> set = find_set(handle);
  if (set == nullptr || out == nullptr) return kInvalidArgument;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    EventRecord event = {};
    Status status;
    while ((status = set->connection.next_event(&event)) == Status::kOk) {
      const Device device = wanting(*set, event.card);
      if (device == nullptr) continue;
      *out = {device, kXidType, event.xid, kNoInstance, kNoInstance};
      return kSuccess;
    }
    if (status != Status::kTimedOut) return kUnknown;  // the driver is gone
    pollfd items[2] = {{set->connection.fd(), POLLIN, 0}, {set->freed, POLLIN, 0}};
    const int left = left_ms(until);
    if (poll(items, 2, left) == 0 && left_ms(until) == 0) return kTimeout;
    if ((items[1].revents & POLLIN) != 0) return kTimeout;
  }
}

// Field ids, by NVML's numbers.
enum Field : std::uint32_t {
  kEccCurrent = 1,
  kEccPending = 2,
  kEccFirstCount = 3,
  kEccLastCount = 28,
  kMemoryTemperature = 82,
  kEnergy = 83,
  kNvlinkSpeedCommon = 90,
  kNvlinkCount = 91,
  kRemappedCorrected = 142,
  kRemappedFailed = 145,
  kNvlinkSpeed = 164,
  kNvlinkState = 165,
  kNvlinkVersion = 166,
  kC2cLinks = 170,
  kPowerAverage = 185,
  kPowerInstant = 186,
  kPowerMinLimit = 187,
  kPowerMaxLimit = 188,
  kPowerDefaultLimit = 189,
  kPowerCurrentLimit = 190,
  kPowerRequestedLimit = 192,
  kRecoveryAction = 230,
};

std::uint32_t link_mbps(const Model& m) { return m.nvlink_version >= 4 ? 26562 : 25781; }

Return give(FieldValue* v, std::uint64_t value, ValueType type = kTypeU32) {
  v->type = type;
  v->value.u64 = value;
  return kSuccess;
}

Return power_field(const Here& h, FieldValue* v, const Vitals& vitals) {
  switch (v->field) {
    case kPowerAverage:
    case kPowerInstant: return give(v, vitals.power_mw);
    case kPowerMinLimit: return give(v, std::min(100000U, h.model.power_limit_mw * 6 / 7));
    default: return give(v, h.model.power_limit_mw);
  }
}

Return nvlink_field(const Here& h, FieldValue* v) {
  const Model& m = h.model;
  if (v->field == kNvlinkCount) return give(v, m.nvlink_links);
  if (m.nvlink_links == 0 || v->scope >= m.nvlink_links) return kNotSupported;
  switch (v->field) {
    case kNvlinkState: return give(v, 1);
    case kNvlinkVersion: return give(v, m.nvlink_version);
    default: return give(v, link_mbps(m));
  }
}

Return read_field(const Here& h, const Vitals& vitals, FieldValue* v) {
  if (v->field == kEccCurrent || v->field == kEccPending) return give(v, 1);
  if (v->field >= kEccFirstCount && v->field <= kEccLastCount) return give(v, 0, kTypeU64);
  if (v->field >= kRemappedCorrected && v->field <= kRemappedFailed) {
    return h.model.compute_major >= 8 ? give(v, 0) : kNotSupported;
  }
  switch (v->field) {
    case kMemoryTemperature:
      return h.model.memory_bus_bits > 1024 ? give(v, vitals.celsius + 6) : kNotSupported;
    case kEnergy: {
      unsigned long long mj = 0;
      std::uint64_t up = 0, busy = 0;
      if (Return r = h.session.lifetime(h.card, &up, &busy); r != kSuccess) return r;
      mj = (up / 1000000 * h.model.power_idle_mw +
            busy / 1000000 * (h.model.power_limit_mw - h.model.power_idle_mw)) / 1000;
      return give(v, mj, kTypeU64);
    }
    case kNvlinkSpeedCommon:
    case kNvlinkCount:
    case kNvlinkSpeed:
    case kNvlinkState:
    case kNvlinkVersion: return nvlink_field(h, v);
    case kC2cLinks: return give(v, 0);
    case kRecoveryAction: {
      std::uint32_t action = 0;
      if (Return r = h.session.state(h.card, &action); r != kSuccess) return r;
      return give(v, action);
    }
    case kPowerAverage:
    case kPowerInstant:
    case kPowerMinLimit:
    case kPowerMaxLimit:
    case kPowerDefaultLimit:
    case kPowerCurrentLimit:
    case kPowerRequestedLimit: return power_field(h, v, vitals);
    default: return kNotSupported;
  }
}

}  // namespace

CARVE_NVML_EXPORT Return nvmlEventSetCreate(EventSet** out) {
  if (Return r = initialised(); r != kSuccess) return r;
  if (out == nullptr) return kInvalidArgument;
  auto set = std::make_shared<EventSet>();
  if (set->connection.open(ClientKind::kQuery) != Status::kOk) return kDriverNotLoaded;
  if (set->connection.watch_events() != Status::kOk) return kUnknown;
  *out = set.get();
  const MutexLock lock(events().mutex);
  events().sets.emplace(set.get(), set);
  return kSuccess;
}

CARVE_NVML_EXPORT Return nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long* out) {
  return card_value(device, out, [](const Here&) { return kEventTypes; });
}

CARVE_NVML_EXPORT Return nvmlDeviceRegisterEvents(Device device, unsigned long long types,
                                                  EventSet* handle) {
  return on_card(device, [&](const Here& h) -> Return {
    if ((types & ~kEventTypes) != 0) return kNotSupported;
    const MutexLock lock(events().mutex);
    const auto found = events().sets.find(handle);
    if (found == events().sets.end()) return kInvalidArgument;
    found->second->wanted[h.card.minor] |= types;
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlEventSetWait(EventSet* set, EventData* out, unsigned timeout_ms) {
  return wait(set, out, timeout_ms);
}
CARVE_NVML_EXPORT Return nvmlEventSetWait_v2(EventSet* set, EventData* out, unsigned timeout_ms) {
  return wait(set, out, timeout_ms);
}

CARVE_NVML_EXPORT Return nvmlEventSetFree(EventSet* handle) {
  if (Return r = initialised(); r != kSuccess) return r;
  const MutexLock lock(events().mutex);
  const auto found = events().sets.find(handle);
  if (found == events().sets.end()) return kInvalidArgument;
  const std::shared_ptr<EventSet> set = found->second;
  events().sets.erase(found);
  eventfd_write(set->freed, 1);
  return kSuccess;
}

CARVE_NVML_EXPORT Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  return on_card(device, [&](const Here& h) -> Return {
    if (count <= 0 || values == nullptr) return kInvalidArgument;
    Vitals vitals;
    if (Return r = read_vitals(h, &vitals); r != kSuccess) return r;
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    for (FieldValue* v = values; v != values + count; ++v) {
      v->time_us = static_cast<std::int64_t>(now.tv_sec) * 1000000 + now.tv_nsec / 1000;
      v->latency_us = 0;
      v->result = read_field(h, vitals, v);
    }
    return kSuccess;
  });
}

}  // namespace carve::sim::nvml
