#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "port/kubelet.h"

namespace carve::kubelet {

struct DraSocketOptions {
  std::string driver;          // "gpu.elasticgpu.io"
  std::string plugins_folder;  // <kubelet>/plugins/<driver>
  std::string registry;        // <kubelet>/plugins_registry
  std::string unique;          // the pod's UID, part of both names, so that two agents can serve concurrently
};

struct SlotSocketOptions {
  std::string resource;  // "elasticgpu.io/slot"
  std::string folder;    // <kubelet>/device-plugins
  std::string socket;    // "carve-slots.sock"
};

/// Serves the kubelet's calls and registers with the kubelet: one gRPC server behind sockets that this class binds,
/// accepts from and re-creates when they are deleted. A kubelet that (re)starts creates kubelet.sock; within
/// milliseconds the plugin is registered there again.
class KubeletServer {
 public:
  struct Plugins {
    DraCalls* dra = nullptr;  // null: this interface is not served
    DraSocketOptions dra_sockets;
    SlotCalls* slots = nullptr;
    SlotSocketOptions slot_socket;
  };
  /// The state since open(), for metrics and the Node's conditions.
  struct Seen {
    bool dra_registered = false;
    bool slots_registered = false;  // registered, and the kubelet watches the list
    std::uint64_t slot_registrations = 0;
    std::string error;  // the last error of the kubelet or the system; empty: none
  };

  /// Starts the gRPC server; run() creates the sockets. The objects in `plugins` must outlive it.
  static Result<std::unique_ptr<KubeletServer>> open(const Plugins& plugins, Log& log);
  ~KubeletServer();
  /// Serves until `stop`. Then removes the registration first, so that the kubelet sends no more calls, and the other
  /// sockets afterwards; the destructor ends calls in flight.
  void run(const std::stop_token& stop);
  /// Call it when the list of slots or the health of a device has changed: sends the new state on all open streams.
  void changed();
  [[nodiscard]] Seen seen() const;

 private:
  struct Impl;
  explicit KubeletServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace carve::kubelet
