#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "sim/protocol/channel.h"
#include "sim/protocol/messages.h"

// One connection to the simulated driver's kernel side. Thread-safe: calls are serialised.
namespace carve::sim {

class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  /// Connects and sends the hello. With kCuda also maps the channel and the bell.
  ///   errors  kGone: no daemon listens there; kWrongAbi: the daemon is of another build
  Status open(ClientKind kind, const char* path = kSocketPath);
  void close();
  /// False when the daemon is gone.
  [[nodiscard]] bool peer_alive() const;
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

  /// One call. `records`, when given, receives all payload packets one after the other.
  Status call(Op op, std::uint32_t card, std::uint64_t a, std::uint64_t b,
              std::uint64_t* out = nullptr, std::vector<unsigned char>* records = nullptr);

  /// A call that is answered by a list of R; empty on error.
  template <class R>
  Status list(Op op, std::uint32_t card, std::uint64_t a, std::uint64_t b, std::vector<R>* out) {
    std::vector<unsigned char> bytes;
    const Status status = call(op, card, a, b, nullptr, &bytes);
    out->resize(bytes.size() / sizeof(R));
    if (!out->empty()) __builtin_memcpy(out->data(), bytes.data(), out->size() * sizeof(R));
    return status;
  }

  /// Subscribes to events; next_event() then returns them. No other call is allowed afterwards.
  Status watch_events() { return call(Op::kWatchEvents, 0, 0, 0); }
  /// The next event, without waiting.
  ///   errors  kTimedOut: none is there; kGone
  Status next_event(EventRecord* out);
  /// The descriptor to poll for events.
  [[nodiscard]] int fd() const { return fd_; }

  /// Injects or removes a fault; see Injection.
  Status inject(std::uint32_t card, Injection what, std::uint64_t argument, std::uint64_t pid = 0);

  [[nodiscard]] const MachineRecord& machine() const { return machine_; }
  [[nodiscard]] Channel* channel() const { return channel_; }
  [[nodiscard]] Bell* bell() const { return bell_; }

 private:
  Status hello(ClientKind kind);
  Status exchange(const Request& request, std::uint64_t* out, std::vector<unsigned char>* records);
  Status receive(std::uint64_t* out, std::vector<unsigned char>* records, int* fds);

  Mutex mutex_;
  int fd_ = -1;
  MachineRecord machine_ = {};
  Channel* channel_ = nullptr;
  Bell* bell_ = nullptr;
};

/// Wakes the daemon if it sleeps. One load when it does not.
void ring(Bell* bell);

}  // namespace carve::sim
