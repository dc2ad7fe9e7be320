#include "app/control/takeover_resync.h"

#include <fmt/format.h>

#include <utility>

namespace carve::control {
namespace {

/// nullopt: nothing is decided about that Pod, or it holds nothing any more.
std::optional<codec::ClusterPod> decided_pod(const std::string& text) {
  auto pod = codec::parse_cluster_pod(text);
  if (!pod || pod->node.empty() || pod->record.empty() || pod->ended) return std::nullopt;
  return std::move(*pod);
}

}  // namespace

Result<bool> TakeoverResync::operator()(std::uint64_t term) {
  const std::lock_guard lock(mutex_);
  if (asked_ != term) {
    asked_ = term;
    trouble_.reset();
    asks_.notify_all();
  }
  if (known_ == term) return true;
  if (trouble_) return tl::unexpected(*trouble_);
  return false;
}

bool TakeoverResync::asked_for(std::uint64_t term) const {
  const std::lock_guard lock(mutex_);
  return asked_ == term;
}

bool TakeoverResync::seen(const std::string& uid, const Decided& decided) const {
  const auto pod = model_.pod(uid);
  return pod && pod->object.node == decided.node && pod->object.record == decided.record;
}

Result<void> TakeoverResync::list() {
  CARVE_TRY(const auto all, api_.list("/api/v1/pods"));
  wanted_.clear();
  for (const auto& text : all) {
    const auto pod = decided_pod(text);
    if (!pod) continue;
    wanted_[pod->ask.uid] = {fmt::format("/api/v1/namespaces/{}/pods/{}", pod->ask.space, pod->ask.name), pod->node,
                             pod->record};
  }
  return {};
}

/// Not by another list: in a cluster where pods come and go while it is made, each has its own that are gone.
Result<void> TakeoverResync::look_again(std::uint64_t term, const std::stop_token& stop) {
  for (auto at = wanted_.begin(); at != wanted_.end();) {
    if (stop.stop_requested() || !asked_for(term)) return {};
    auto& [uid, decided] = *at;
    bool over = seen(uid, decided);
    if (!over) {
      const auto text = api_.get(decided.path);
      if (!text && text.error().code != Code::kNotFound) return tl::unexpected(text.error());
      const auto pod = text ? decided_pod(*text) : std::nullopt;
      over = !pod || pod->ask.uid != uid;
      if (!over) {
        decided.node = pod->node;
        decided.record = pod->record;
      }
    }
    at = over ? wanted_.erase(at) : std::next(at);
  }
  return {};
}

Result<bool> TakeoverResync::find_out(std::uint64_t term, const std::stop_token& stop) {
  if (!model_.synced()) return false;
  if (term != listed_) {
    CARVE_TRY_VOID(list());
    listed_ = term;
    looked_ = clock_.now();
  }
  std::erase_if(wanted_, [this](const auto& one) { return seen(one.first, one.second); });
  if (!wanted_.empty() && clock_.now() >= looked_ + kPatience) {
    const auto looked = look_again(term, stop);
    looked_ = clock_.now();
    CARVE_TRY_VOID(looked);
  }
  return wanted_.empty();
}

void TakeoverResync::step(const std::stop_token& stop) {
  std::uint64_t term = 0;
  {
    const std::lock_guard lock(mutex_);
    if (asked_ == known_) return;
    term = asked_;
  }
  auto known = find_out(term, stop);
  const std::lock_guard lock(mutex_);
  if (asked_ != term) return;
  if (known && *known) known_ = term;
  trouble_ = known ? std::nullopt : std::optional<Error>(std::move(known.error()));
}

void TakeoverResync::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (!asks_.wait(lock, stop, [this] { return asked_ != known_; })) return;
    }
    step(stop);
    if (!clock_.sleep_for(kLook, stop)) return;
  }
}

}  // namespace carve::control
