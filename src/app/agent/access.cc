#include "app/agent/access.h"

#include <algorithm>

namespace carve::agent {
namespace {

bool matches(const AccessRule& rule, const Caller& caller) {
  if (rule.uid && *rule.uid != caller.uid) return false;
  return !rule.gid || std::find(caller.gids.begin(), caller.gids.end(), *rule.gid) != caller.gids.end();
}

tl::unexpected<Error> refuse(const Caller& caller, const AccessRule& rule, const std::string& what) {
  return fail(Code::kPermissionDenied, "user " + std::to_string(caller.uid) + " may not request " + what +
                                           " (configuration: allow " + rule.text + ")");
}

Result<void> check_ceilings(const AccessRule& rule, const Caller& caller, const Request& request,
                            std::uint32_t living) {
  if (rule.max_cards && request.count > *rule.max_cards) {
    return refuse(caller, rule,
                  std::to_string(request.count) + " cards, at most " + std::to_string(*rule.max_cards));
  }
  if (rule.max_memory && (request.memory.is_percent() || request.memory.bytes() > *rule.max_memory)) {
    const std::string asked = request.memory.is_percent()
                                  ? std::to_string(request.memory.percent()) + "% of a card"
                                  : to_human(request.memory.bytes());
    return refuse(caller, rule,
                  "memory " + asked + ", at most " + to_human(*rule.max_memory) + " (in bytes)");
  }
  if (rule.max_compute && request.compute.share().hundredths() > *rule.max_compute) {
    return refuse(caller, rule,
                  "compute " + to_human(request.compute) + ", at most " +
                      std::to_string(*rule.max_compute) + " (1/100 of a card)");
  }
  const std::uint32_t most = rule.max_slices.value_or(kUsualMostSlices);
  if (living >= most) {
    return refuse(caller, rule,
                  "one more slice: " + std::to_string(living) + " exist, at most " + std::to_string(most) +
                      (rule.max_slices ? "" : " without max-slices"));
  }
  if (!rule.online && request.priority == PriorityClass::kOnline)
    return refuse(caller, rule, "priority online");
  return {};
}

}  // namespace

Result<void> check_access(const std::vector<AccessRule>& rules, const Caller& caller, const Request& request,
                          std::uint32_t living) {
  if (caller.uid == 0) return {};
  for (const auto& rule : rules) {
    if (!matches(rule, caller)) continue;
    if (!rule.allow)
      return fail(Code::kPermissionDenied, "user " + std::to_string(caller.uid) +
                                               " may not request slices (configuration: deny " + rule.text +
                                               ")");
    return check_ceilings(rule, caller, request, living);
  }
  return fail(Code::kPermissionDenied,
              "user " + std::to_string(caller.uid) +
                  " may not request slices: only root and users that the configuration allows "
                  "(`allow = user:NAME` or `allow = group:NAME`; default: group carve)");
}

Result<void> check_owner(const Caller& caller, std::uint32_t slice_uid, const std::string& slice) {
  if (caller.uid == 0 || caller.uid == slice_uid) return {};
  return fail(Code::kPermissionDenied, "slice " + slice + " belongs to user " + std::to_string(slice_uid) +
                                           ", not to user " + std::to_string(caller.uid));
}

}  // namespace carve::agent
