#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::control {

/// Forwards a scheduler's bind call to the replica that may bind. kube-scheduler keeps its connections, so it may send
/// calls to a replica that does not lead for as long as that replica lives.
class BindRoute {
 public:
  struct World {
    std::function<bool()> leads;
    std::function<std::string()> holder;  // the leader's identity from the Lease; empty: no leader
    std::function<std::string(std::string_view call)> bind;
    /// Sends the call to the replica at that address. That replica must answer itself and must not forward the call.
    std::function<Result<std::string>(const std::string& address, std::string_view call)> ask;
  };
  explicit BindRoute(World world) : world_(std::move(world)) {}

  /// The leader's answer; without one, an error, after which the scheduler retries the pod.
  [[nodiscard]] std::string bind(std::string_view call) const;

 private:
  World world_;
};

/// A replica's identity in the Lease: "name@address", or only the name if the replica is not reachable.
[[nodiscard]] std::string holder_identity(const std::string& name, const std::string& address);
/// The address in an identity; empty: there is none.
[[nodiscard]] std::string address_in(const std::string& identity);

}  // namespace carve::control
