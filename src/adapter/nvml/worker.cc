#include "adapter/nvml/worker.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "adapter/nvml/events.h"
#include "adapter/nvml/inventory.h"
#include "adapter/nvml/library.h"
#include "adapter/nvml/wire.h"

namespace carve::nvml {
namespace {

class Worker {
 public:
  Worker(int socket_fd, int events_fd, std::string driver_root)
      : fd_(socket_fd), events_fd_(events_fd), driver_root_(std::move(driver_root)) {}

  int run() {
    WireRequest request;
    for (;;) {
      const ssize_t n = ::recv(fd_, &request, sizeof(request), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return 0;  // the agent has ended
      if (n != sizeof(request) || request.magic != kWireMagic) return 1;
      const bool sent = request.op == Op::kInventory ? inventory(request) : usage(request);
      if (!sent) return 0;
    }
  }

 private:
  bool send_parts(const WireHeader& header, const void* a, std::size_t a_bytes, const void* b = nullptr,
                  std::size_t b_bytes = 0) {
    iovec parts[3] = {{const_cast<WireHeader*>(&header), sizeof(header)},
                      {const_cast<void*>(a), a_bytes},
                      {const_cast<void*>(b), b_bytes}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    return ::sendmsg(fd_, &message, MSG_NOSIGNAL) >= 0;
  }

  WireHeader failed(const WireRequest& request, int status, const std::string& text) const {
    WireHeader header;
    header.sequence = request.sequence;
    header.status = status;
    std::snprintf(header.text, sizeof(header.text), "%s", text.c_str());
    return header;
  }

  bool inventory(const WireRequest& request) {
    if (!library_) {
      auto opened = open_library(driver_root_);
      if (!opened) {
        auto header = failed(request, kDriverNotLoaded, opened.error().what);
        header.absent = 1;
        return send_parts(header, nullptr, 0);
      }
      library_ = std::move(*opened);
      events_ = new EventWatch(*library_, events_fd_);
    }
    WireMachine machine;
    std::vector<WireCard> cards;
    std::string what;
    const int status = take_inventory(*library_, &handles_, &machine, &cards, &what);
    if (status != kSuccess) {
      return send_parts(failed(request, status, what + ": " + describe(library_->api, status)), nullptr, 0);
    }
    events_->register_cards(handles_.devices, &cards);
    WireHeader header;
    header.sequence = request.sequence;
    header.generation = handles_.generation;
    header.count = machine.cards;
    header.record_bytes = sizeof(WireCard);
    return send_parts(header, &machine, sizeof(machine), cards.data(), cards.size() * sizeof(WireCard));
  }

  bool usage(const WireRequest& request) {
    if (!library_ || request.generation != handles_.generation || request.card >= handles_.devices.size()) {
      return send_parts(
          failed(request, kInvalidArgument, "the handle is from an earlier inventory: request the inventory again"),
          nullptr, 0);
    }
    WireUsage usage;
    std::vector<WireProcess> processes;
    std::string what;
    const int status = take_usage(*library_, &handles_, request.card, &usage, &processes, &what);
    if (status != kSuccess) {
      return send_parts(failed(request, status, what + ": " + describe(library_->api, status)), nullptr, 0);
    }
    WireHeader header;
    header.sequence = request.sequence;
    header.generation = handles_.generation;
    header.count = usage.processes;
    header.record_bytes = sizeof(WireProcess);
    return send_parts(header, &usage, sizeof(usage), processes.data(),
                      processes.size() * sizeof(WireProcess));
  }

  int fd_;
  int events_fd_;
  std::string driver_root_;
  std::optional<Library> library_;
  Handles handles_;
  EventWatch* events_ = nullptr;  // never deleted: its thread ends with the process
};

}  // namespace

int run_worker(int socket_fd, int events_fd, const std::string& driver_root) {
  auto* worker = new Worker(socket_fd, events_fd, driver_root);  // never deleted: its second thread outlives this call
  return worker->run();
}

}  // namespace carve::nvml
