#include "app/control/bind/bind_route.h"

#include "codec/extender/extender.h"

namespace carve::control {

std::string BindRoute::bind(std::string_view call) const {
  if (world_.leads()) return world_.bind(call);
  const auto holder = world_.holder();
  if (holder.empty())
    return codec::binding_result("no replica of carve-control leads at the moment; kube-scheduler retries");
  const auto address = address_in(holder);
  if (address.empty())
    return codec::binding_result("the leader " + holder +
                                 " publishes no address, and this replica may not bind; kube-scheduler retries");
  auto answer = world_.ask(address, call);
  if (answer) return std::move(*answer);
  return codec::binding_result("the leader " + holder + " did not answer (" + answer.error().what +
                               "); kube-scheduler retries");
}

std::string holder_identity(const std::string& name, const std::string& address) {
  return address.empty() ? name : name + "@" + address;
}

std::string address_in(const std::string& identity) {
  const auto at = identity.rfind('@');
  return at == std::string::npos ? std::string() : identity.substr(at + 1);
}

}  // namespace carve::control
