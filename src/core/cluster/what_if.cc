#include "core/cluster/what_if.h"

#include <algorithm>
#include <utility>

#include "core/cluster/ruled_fit.h"

namespace carve {
namespace {

/// The largest value in [1, high) for which the pod fits; nullopt: there is none. Assumes that a pod that fits with a
/// value also fits with a smaller one.
template <class Fits>
std::optional<std::uint64_t> largest_below(std::uint64_t high, const Fits& fits) {
  std::uint64_t good = 0;  // the pod fits with it; 0: no such value is known yet
  while (good + 1 < high) {
    const auto middle = good + (high - good) / 2;
    (fits(middle) ? good : high) = middle;
  }
  return good == 0 ? std::nullopt : std::optional(good);
}

/// The largest value that any container requests.
template <class Value>
std::uint64_t most(const std::vector<PartRequest>& parts, const Value& value) {
  std::uint64_t high = 0;
  for (const auto& part : parts) high = std::max<std::uint64_t>(high, value(part.request));
  return high;
}

}  // namespace

SmallerAsk what_would_fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
                          const std::vector<std::string>& names, const PodPolicy& policy, std::int32_t priority,
                          const WithinQuotas& within) {
  const auto fits_with = [&](const auto& shrink) {
    auto smaller = parts;
    for (auto& part : smaller) shrink(part.request);
    if (within) smaller = within(std::move(smaller));
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return !fit(cluster, owner, smaller, {name}, policy, priority).nodes.empty();
    });
  };
  SmallerAsk smaller;
  if (std::none_of(parts.begin(), parts.end(), [](const PartRequest& p) { return p.request.whole; })) {
    const auto memory = most(parts, [](const Request& r) { return r.memory.bytes().whole_mib(); });
    const auto mebibytes = largest_below(memory, [&](std::uint64_t cap) {
      return fits_with([&](Request& r) {
        if (!r.memory.is_percent()) r.memory = MemoryAsk::of(std::min(r.memory.bytes(), Bytes::mib(cap)));
      });
    });
    if (mebibytes) smaller.memory = Bytes::mib(*mebibytes);
    const auto compute = most(parts, [](const Request& r) { return r.compute.share().hundredths(); });
    const auto hundredths = largest_below(compute, [&](std::uint64_t cap) {
      const CoreShare most_of_it(static_cast<std::uint32_t>(cap));
      return fits_with([&](Request& r) {
        if (!r.compute.is_tflops()) r.compute = std::min(r.compute.share(), most_of_it);
      });
    });
    if (hundredths) smaller.compute = static_cast<std::uint32_t>(*hundredths);
  }
  const auto count = most(parts, [](const Request& r) { return r.count; });
  const auto cards = largest_below(count, [&](std::uint64_t cap) {
    return fits_with([&](Request& r) { r.count = std::min(r.count, static_cast<std::uint32_t>(cap)); });
  });
  if (cards) smaller.cards = static_cast<std::uint32_t>(*cards);
  return smaller;
}

SmallerAsk what_would_fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
                          const std::vector<std::string>& names, const PolicyRow& policy) {
  return what_would_fit(cluster, owner, parts, names, PodPolicy(policy));
}

}  // namespace carve
