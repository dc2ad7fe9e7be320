#include "app/agent/tolerance.h"

#include <algorithm>
#include <numeric>

namespace carve::agent {

std::vector<Bytes> tolerances(Bytes spare, const std::vector<Bytes>& excess, const ToleranceBounds& bounds) {
  std::vector<std::size_t> order(excess.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return excess[a] < excess[b]; });
  std::vector<Bytes> given(excess.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Bytes part(spare.count() / (order.size() - i));
    given[order[i]] = std::min({excess[order[i]], bounds.most, part});
    spare -= given[order[i]];
  }
  const Bytes rest(excess.empty() ? 0 : spare.count() / excess.size());
  for (Bytes& one : given) one = std::min(one + rest, bounds.most);
  return given;
}

Bytes kept_back(Bytes tolerance, Bytes limit, const ToleranceBounds& bounds) {
  return std::min(bounds.unannounced - tolerance, Bytes(limit.count() / bounds.kept_back_part));
}

std::vector<Margin> margins(Bytes spare, const std::vector<Bytes>& excess, const std::vector<Bytes>& limits,
                            const ToleranceBounds& bounds) {
  std::vector<Margin> all;
  for (const Bytes tolerance : tolerances(spare, excess, bounds)) {
    const Bytes back = excess.size() == 1 ? Bytes() : kept_back(tolerance, limits[all.size()], bounds);
    all.push_back({tolerance, back});
  }
  return all;
}

}  // namespace carve::agent
