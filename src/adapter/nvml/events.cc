#include "adapter/nvml/events.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace carve::nvml {
namespace {

constexpr unsigned long long kXidEvent = 0x8;
constexpr unsigned kWaitMs = 5000;
constexpr unsigned kPauseUs = 500'000;  // after an error; the calls of the other thread will report what it is

}  // namespace

bool EventWatch::open() {
  const Api& api = library_.api;
  if (set_ != nullptr) return true;
  if (api.event_set_create == nullptr || api.register_events == nullptr || api.event_wait == nullptr) return false;
  if (api.event_set_create(&set_) != kSuccess) set_ = nullptr;
  return set_ != nullptr;
}

bool EventWatch::register_card(Device device) {
  unsigned long long types = kXidEvent;
  if (library_.api.supported_events != nullptr && library_.api.supported_events(device, &types) != kSuccess)
    return false;
  // Request only supported events: with one unsupported bit the driver registers nothing.
  return (types & kXidEvent) != 0 && library_.api.register_events(device, kXidEvent, set_) == kSuccess;
}

void EventWatch::register_cards(const std::vector<Device>& devices, std::vector<WireCard>* cards) {
  if (!open()) return;
  bool any = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool watched = register_card(devices[i]);
    (*cards)[i].watched = watched ? 1 : 0;
    any = any || watched;
    const MutexLock lock(mutex_);
    const auto& uuid = (*cards)[i].uuid;
    if (watched) uuids_[devices[i]] = std::string(uuid, ::strnlen(uuid, sizeof(uuid)));
  }
  if (any && !thread_.running()) thread_ = Thread("nvml-events", [this] { run(); });
}

void EventWatch::send_event(const EventData& event) {
  WireEvent wire;
  wire.xid = static_cast<std::uint32_t>(event.data);
  {
    const MutexLock lock(mutex_);
    const auto found = uuids_.find(event.device);
    if (found == uuids_.end()) return;
    std::snprintf(wire.uuid, sizeof(wire.uuid), "%s", found->second.c_str());
  }
  ::send(fd_, &wire, sizeof(wire), MSG_NOSIGNAL);
}

void EventWatch::run() {
  for (;;) {
    EventData event = {};
    const int status = library_.api.event_wait(set_, &event, kWaitMs);
    if (status == kSuccess) {
      if (event.type == kXidEvent) send_event(event);
    } else if (status != kTimeout) {
      ::usleep(kPauseUs);
    }
  }
}

}  // namespace carve::nvml
