#include "app/control/bind/leader_route.h"

#include "app/control/bind/bind_route.h"

namespace carve::control {

std::string LeaderRoute::leader() const {
  if (world_.leads()) return {};
  const auto avoid_until = avoid_until_.load();
  if (avoid_until != 0 && world_.clock.now().time_since_epoch().count() < avoid_until) return {};
  return address_in(world_.holder());
}

std::string LeaderRoute::answer(std::string_view path, std::string_view call, const Answer& own) const {
  const auto address = leader();
  if (address.empty()) return own(call);
  if (auto answer = world_.ask(address, path, call)) {
    avoid_until_ = 0;
    return std::move(*answer);
  }
  ++unanswered_;
  avoid_until_ = (world_.clock.now() + kAvoid).time_since_epoch().count();
  return own(call);
}

}  // namespace carve::control
