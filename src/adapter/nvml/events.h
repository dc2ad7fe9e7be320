#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "adapter/nvml/inventory.h"

namespace carve::nvml {

/// The worker's second thread: waits for the driver's critical errors (XIDs) and tells the agent at once. It asks
/// nothing else, so that a slow answer to a question delays no event. It has no end but the process's.
class EventWatch {
 public:
  /// in  socket_fd: where WireEvents go; it blocks while the agent does not read, and the driver keeps what comes
  EventWatch(const Library& library, int socket_fd) : library_(library), fd_(socket_fd) {}
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  /// Registers every card of a new inventory (again: one that was lost may be a new one to the driver) and notes in
  /// `cards` which are watched. A driver or a card that knows no such events is not: it is as healthy as its answers.
  void register_cards(const std::vector<Device>& devices, std::vector<WireCard>* cards);

 private:
  bool open();
  [[nodiscard]] bool register_card(Device device);
  void run();
  void tell(const EventData& event);

  const Library& library_;
  int fd_;
  EventSet set_ = nullptr;
  bool runs_ = false;
  std::mutex mutex_;
  std::map<Device, std::string> uuids_;
};

}  // namespace carve::nvml
