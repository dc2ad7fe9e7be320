#include "app/agent/process_slices.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

namespace carve::agent {
namespace {

template <typename T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

std::vector<std::string> ProcessSlices::slices_of(std::int32_t pid, bool by_hellos) const {
  const std::string own = world_.cgroups != nullptr ? world_.cgroups->slice_of(pid) : std::string();
  if (!own.empty()) return {own};
  const auto seen = world_.processes.slices_seen_by(pid);
  const auto member = world_.containers != nullptr ? world_.containers->process(pid) : std::nullopt;
  return store_.read([&](const SliceStore::State& state) {
    std::vector<std::string> ids;
    std::vector<std::string> mounted;
    std::vector<std::string> pods;
    for (const auto& [id, slice] : state.slices) {
      if (by_hellos && contains(slice.registered, pid)) ids.push_back(id);
      if (member && contains(slice.pods, member->pod)) pods.push_back(id);
    }
    for (const auto& id : seen) {
      const auto found = state.slices.find(id);
      const bool others = member && found != state.slices.end() && found->second.holder.kind == OwnerKind::kPod &&
                          !found->second.pods.empty() && !contains(pods, id);
      if (!others) mounted.push_back(id);
    }
    std::stable_partition(mounted.begin(), mounted.end(), [&](const auto& id) { return contains(pods, id); });
    ids.insert(ids.end(), mounted.begin(), mounted.end());
    return ids.empty() ? pods : ids;
  });
}

std::string ProcessSlices::slice_on(const std::vector<std::string>& ids, const CardId& card) const {
  return store_.read([&](const SliceStore::State& state) {
    for (const auto& id : ids) {
      const auto found = state.slices.find(id);
      if (found != state.slices.end() && found->second.card_index(card)) return id;
    }
    return ids.empty() ? std::string() : ids.front();
  });
}

std::vector<Sighting> ProcessSlices::sightings_of(const std::vector<GpuUsage>& usage, bool by_hellos) const {
  std::vector<Sighting> sightings;
  std::map<std::int32_t, std::vector<std::string>> known;
  for (const auto& card : usage) {
    for (const auto& process : card.processes) {
      auto [it, fresh] = known.try_emplace(process.pid);
      if (fresh) it->second = slices_of(process.pid, by_hellos);
      sightings.push_back({slice_on(it->second, card.card), card.card, process});
    }
  }
  return sightings;
}

bool ProcessSlices::is_still_of(const std::string& slice, std::int32_t pid) const {
  if (world_.cgroups != nullptr && world_.cgroups->slice_of(pid) == slice) return true;
  if (contains(world_.processes.slices_seen_by(pid), slice)) return true;
  if (const auto member = world_.containers != nullptr ? world_.containers->process(pid) : std::nullopt) {
    const auto found = store_.find(slice);
    if (!found) return false;
    if (contains(found->pods, member->pod)) return true;
  }
  const auto pages = pages_.list();  // the arbiter holds a pidfd of each process that sent a hello
  for (const auto& one : pages ? *pages : std::vector<PageSlice>()) {
    if (one.id != slice) continue;
    return std::any_of(one.processes.begin(), one.processes.end(), [&](const auto& own) { return own.pid == pid; });
  }
  return false;
}

bool ProcessSlices::sees_any(std::int32_t pid, const std::set<std::string>& ids) const {
  const auto seen = world_.processes.slices_seen_by(pid);
  return std::any_of(seen.begin(), seen.end(), [&](const auto& id) { return ids.count(id) != 0; });
}

Result<std::vector<PodProcess>> ProcessSlices::pod_processes() const {
  if (world_.containers == nullptr) return fail(Code::kUnavailable, "containers cannot be seen here");
  return world_.containers->processes();
}

Result<std::set<std::int32_t>> ProcessSlices::holders_of(const std::set<std::string>& ids,
                                                         const Result<std::vector<PodProcess>>& pods,
                                                         bool part_only) const {
  std::set<std::int32_t> alive;
  std::set<std::string> own;  // UIDs
  bool claims = part_only;
  bool has_pages = false;
  for (const auto& id : ids) {
    const auto slice = store_.find(id);
    if (!slice) continue;
    has_pages = has_pages || !slice->whole();
    claims = claims || slice->holder.kind == OwnerKind::kClaim || slice->pods.empty();
    if (!part_only) own.insert(slice->pods.begin(), slice->pods.end());
  }
  for (const auto& process : pods ? *pods : std::vector<PodProcess>()) {
    const bool by_mounts = claims || process.pod.empty();
    if (own.count(process.pod) != 0 || (by_mounts && sees_any(process.pid, ids))) alive.insert(process.pid);
  }
  const auto pages = has_pages ? pages_.list() : Result<std::vector<PageSlice>>();
  for (const auto& slice : pages ? *pages : std::vector<PageSlice>()) {
    if (ids.count(slice.id) == 0) continue;
    for (const auto& process : slice.processes) alive.insert(process.pid);
  }
  const auto usage = world_.gpu.state() == GpuState::kOk
                         ? world_.gpu.usage()
                         : Result<std::vector<GpuUsage>>(fail(Code::kUnavailable, world_.gpu.reason()));
  for (const auto& seen : usage ? sightings_of(*usage) : std::vector<Sighting>()) {
    if (ids.count(seen.slice) != 0) alive.insert(seen.process.pid);
  }
  // If pods can be read, the pages do not replace them: a whole card has no pages.
  if (!pods && (world_.containers != nullptr || !pages)) {
    return fail(Code::kUnavailable, fmt::format("cannot determine whether its processes have ended: {}{}",
                                                pods.error().what, pages ? "" : "; arbiter: " + pages.error().what));
  }
  return alive;
}

}  // namespace carve::agent
