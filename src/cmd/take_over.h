#pragma once

#include <memory>

#include "adapter/kubelet/kubelet_server.h"
#include "app/plugins/waiting_dra.h"
#include "base/log.h"
#include "base/result.h"
#include "base/thread.h"
#include "cmd/node_plugins.h"

namespace carve::cmd {

/// The DRA driver of an agent that waits for the previous agent of its node to end. It is registered with the kubelet
/// already, by sockets of its own, and the kubelet's calls wait. It ends when the agent's own DRA driver is open.
class TakeOver {
 public:
  /// nullptr: the options do not include the DRA driver.
  static Result<std::unique_ptr<TakeOver>> open(const PluginOptions& options, Log& log);
  ~TakeOver();
  TakeOver(const TakeOver&) = delete;
  TakeOver& operator=(const TakeOver&) = delete;
  [[nodiscard]] plugins::WaitingDra& driver() { return driver_; }
  /// Closes the sockets. driver() stays valid, because run_plugins() may still use it.
  void close();

 private:
  TakeOver() = default;
  plugins::WaitingDra driver_;
  std::unique_ptr<kubelet::KubeletServer> server_;
  Thread serving_;
};

}  // namespace carve::cmd
