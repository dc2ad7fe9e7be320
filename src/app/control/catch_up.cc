#include "app/control/catch_up.h"

namespace carve::control {

Result<bool> CatchUp::operator()(std::uint64_t term) {
  if (!model_.synced()) return false;
  const auto now = clock_.now();
  if (term != term_ || now >= listed_ + std::chrono::seconds(1)) {
    CARVE_TRY(const auto all, api_.list("/api/v1/pods"));
    wanted_.clear();
    for (const auto& text : all) {
      const auto pod = codec::parse_cluster_pod(text);
      if (pod && !pod->node.empty() && !pod->record.empty() && !pod->ended)
        wanted_[pod->ask.uid] = {pod->node, pod->record};
    }
    term_ = term;
    listed_ = now;
  }
  std::erase_if(wanted_, [this](const auto& one) {
    const auto pod = model_.pod(one.first);
    return pod && pod->object.node == one.second.node && pod->object.record == one.second.record;
  });
  return wanted_.empty();
}

}  // namespace carve::control
