#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::control {

/// Leads a scheduler's bind call to the replica that may bind. kube-scheduler keeps its connections, so it may ask a
/// replica that does not lead for as long as that one lives.
class BindRoute {
 public:
  struct World {
    std::function<bool()> leads;
    std::function<std::string()> holder;  // who leads, as the Lease says; empty: nobody
    std::function<std::string(std::string_view call)> bind;
    /// Asks the replica at that address; it must answer itself, and hand the call to nobody.
    std::function<Result<std::string>(const std::string& address, std::string_view call)> ask;
  };
  explicit BindRoute(World world) : world_(std::move(world)) {}

  /// The leader's answer; where there is none, one by which the scheduler tries the pod again.
  [[nodiscard]] std::string bind(std::string_view call) const;

 private:
  World world_;
};

/// What a replica calls itself in the Lease: "name@address", or the name alone when nobody can reach it.
[[nodiscard]] std::string holder_identity(const std::string& name, const std::string& address);
/// The address in it; empty: there is none.
[[nodiscard]] std::string address_in(const std::string& identity);

}  // namespace carve::control
