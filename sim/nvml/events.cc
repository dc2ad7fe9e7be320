// Event sets and field values. No event ever comes (XID injection is a later issue): a wait lasts as
// long as it was asked to and says kTimeout.
#include <algorithm>
#include <condition_variable>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

// Corrected, uncorrected, performance state, XID, clock, recovery action.
constexpr unsigned long long kEventTypes = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x8000;

struct EventSet {
  std::condition_variable wake;
};

struct Events {
  std::mutex mutex;
  // Shared with whoever waits: freeing a set that somebody waits for wakes them and harms nobody.
  std::map<EventSet*, std::shared_ptr<EventSet>> sets;
};
Events& events() {
  static Events* all = new Events;  // as the library: outlives static destructors
  return *all;
}

Return wait(EventSet* set, unsigned timeout_ms) {
  Events& all = events();
  std::unique_lock lock(all.mutex);
  const auto found = all.sets.find(set);
  if (found == all.sets.end()) return kInvalidArgument;
  const std::shared_ptr<EventSet> mine = found->second;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  mine->wake.wait_until(lock, until, [&] { return all.sets.count(set) == 0; });
  return kTimeout;
}

Return initialised() {
  return on_library([](Session&) { return kSuccess; });
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
    case kRecoveryAction: return give(v, 0);  // none
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
  std::lock_guard lock(events().mutex);
  auto set = std::make_shared<EventSet>();
  *out = set.get();
  events().sets.emplace(set.get(), set);
  return kSuccess;
}

CARVE_NVML_EXPORT Return nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long* out) {
  return card_value(device, out, [](const Here&) { return kEventTypes; });
}

CARVE_NVML_EXPORT Return nvmlDeviceRegisterEvents(Device device, unsigned long long types,
                                                  EventSet* set) {
  return on_card(device, [&](const Here&) -> Return {
    if ((types & ~kEventTypes) != 0) return kNotSupported;
    std::lock_guard lock(events().mutex);
    return events().sets.count(set) != 0 ? kSuccess : kInvalidArgument;
  });
}

CARVE_NVML_EXPORT Return nvmlEventSetWait(EventSet* set, EventData*, unsigned timeout_ms) {
  if (Return r = initialised(); r != kSuccess) return r;
  return wait(set, timeout_ms);
}
CARVE_NVML_EXPORT Return nvmlEventSetWait_v2(EventSet* set, EventData*, unsigned timeout_ms) {
  if (Return r = initialised(); r != kSuccess) return r;
  return wait(set, timeout_ms);
}

CARVE_NVML_EXPORT Return nvmlEventSetFree(EventSet* set) {
  if (Return r = initialised(); r != kSuccess) return r;
  std::lock_guard lock(events().mutex);
  const auto found = events().sets.find(set);
  if (found == events().sets.end()) return kInvalidArgument;
  const std::shared_ptr<EventSet> mine = found->second;
  events().sets.erase(found);
  mine->wake.notify_all();
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
