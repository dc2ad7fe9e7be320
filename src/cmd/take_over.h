#pragma once

#include <memory>
#include <thread>

#include "adapter/kubelet/kubelet_server.h"
#include "app/doors/waiting_dra.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/node_doors.h"

namespace carve::cmd {

/// While an agent waits for the one that serves its node to end: it is registered with the kubelet's DRA side already,
/// by sockets of its own, and what the kubelet asks waits. Ends when the agent's own doors are open.
class TakeOver {
 public:
  /// nullptr: no DRA door is wanted.
  static Result<std::unique_ptr<TakeOver>> open(const DoorOptions& options, Log& log);
  ~TakeOver();
  TakeOver(const TakeOver&) = delete;
  TakeOver& operator=(const TakeOver&) = delete;
  [[nodiscard]] doors::WaitingDra& door() { return door_; }
  /// Takes the sockets away; the door stays, for who still holds it.
  void close();

 private:
  TakeOver() = default;
  doors::WaitingDra door_;
  std::unique_ptr<kubelet::KubeletServer> server_;
  std::jthread serving_;
};

}  // namespace carve::cmd
