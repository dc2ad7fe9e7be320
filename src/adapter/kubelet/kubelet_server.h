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
  std::string unique;          // in both names, so that two agents can serve side by side: the pod's UID
};

struct SlotSocketOptions {
  std::string resource;  // "elasticgpu.io/slot"
  std::string folder;    // <kubelet>/device-plugins
  std::string socket;    // "carve-slots.sock"
};

/// Everything the kubelet dials, and our registration with it: one gRPC server behind sockets that this class
/// binds, accepts from and puts back when they are wiped. A kubelet that (re)starts makes kubelet.sock;
/// within milliseconds the plugin is registered there again.
class KubeletServer {
 public:
  struct Doors {
    DraCalls* dra = nullptr;  // either may be missing
    DraSocketOptions dra_sockets;
    SlotCalls* slots = nullptr;
    SlotSocketOptions slot_socket;
  };
  /// What happened since open(), for metrics and the Node's conditions.
  struct Seen {
    bool dra_registered = false;
    bool slots_registered = false;  // and the kubelet listens to the list
    std::uint64_t slot_registrations = 0;
    std::string error;  // the kubelet's or the system's last word about it; empty when all is well
  };

  /// Serves at once; sockets appear in run(). `doors` must outlive it.
  static Result<std::unique_ptr<KubeletServer>> open(const Doors& doors, Log& log);
  ~KubeletServer();
  /// Until `stop`. Then the registration goes first, so that the kubelet sends nothing more; calls in flight
  /// end; sockets last.
  void run(const std::stop_token& stop);
  /// The slots' list, or a device's health, is another one now: tells whoever listens.
  void changed();
  [[nodiscard]] Seen seen() const;

 private:
  struct Impl;
  explicit KubeletServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace carve::kubelet
