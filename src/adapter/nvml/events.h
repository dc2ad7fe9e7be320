#pragma once

#include <map>
#include <string>
#include <vector>

#include "adapter/nvml/inventory.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace carve::nvml {

/// The worker's second thread: waits for the driver's critical errors (XIDs) and sends them to the agent immediately.
/// It makes no other NVML calls, so that a slow call does not delay events. It ends only with the process, because no
/// call ends a wait of the driver: do not destroy this object.
class EventWatch {
 public:
  /// in  socket_fd: receives the WireEvents; sending blocks while the agent does not read, and the driver queues events
  EventWatch(const Library& library, int socket_fd) : library_(library), fd_(socket_fd) {}
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  /// Registers every card of a new inventory and sets `watched` in `cards`. Registers known cards again, because a card
  /// that was lost may be a new one for the driver. A card is not watched if it, or the driver, has no such events; its
  /// health then depends on the answers to other calls.
  void register_cards(const std::vector<Device>& devices, std::vector<WireCard>* cards);

 private:
  bool open();
  [[nodiscard]] bool register_card(Device device);
  void run();
  void send_event(const EventData& event);

  const Library& library_;
  int fd_;
  EventSet set_ = nullptr;
  Mutex mutex_;
  std::map<Device, std::string> uuids_ GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace carve::nvml
