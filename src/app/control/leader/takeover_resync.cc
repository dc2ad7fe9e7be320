#include "app/control/leader/takeover_resync.h"

#include <fmt/format.h>

#include <utility>

namespace carve::control {
namespace {

/// nullopt: the Pod has no decision, or holds nothing any more.
std::optional<codec::ClusterPod> decided_pod(const std::string& text) {
  auto pod = codec::parse_cluster_pod(text);
  if (!pod || pod->node.empty() || pod->record.empty() || pod->ended) return std::nullopt;
  return std::move(*pod);
}

}  // namespace

Result<bool> TakeoverResync::operator()(std::uint64_t term) {
  const MutexLock lock(mutex_);
  if (requested_ != term) {
    requested_ = term;
    error_.reset();
    request_.notify_all();
  }
  if (known_term_ == term) return true;
  if (error_) return tl::unexpected(*error_);
  return false;
}

bool TakeoverResync::requested(std::uint64_t term) const {
  const MutexLock lock(mutex_);
  return requested_ == term;
}

bool TakeoverResync::seen(const std::string& uid, const Decision& decided) const {
  const auto pod = model_.pod(uid);
  return pod && pod->object.node == decided.node && pod->object.record == decided.record;
}

Result<void> TakeoverResync::list() {
  CARVE_TRY(const auto all, api_.list("/api/v1/pods"));
  pending_.clear();
  for (const auto& text : all) {
    const auto pod = decided_pod(text);
    if (!pod) continue;
    pending_[pod->ask.uid] = {fmt::format("/api/v1/namespaces/{}/pods/{}", pod->ask.namespace_name, pod->ask.name),
                              pod->node, pod->record};
  }
  return {};
}

/// Reads each pending pod. Another list would not help: in a cluster with much churn, some pods of every list are
/// deleted by the time it is complete.
Result<void> TakeoverResync::read_pending(std::uint64_t term, const std::stop_token& stop) {
  for (auto at = pending_.begin(); at != pending_.end();) {
    if (stop.stop_requested() || !requested(term)) return {};
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
    at = over ? pending_.erase(at) : std::next(at);
  }
  return {};
}

Result<bool> TakeoverResync::resync(std::uint64_t term, const std::stop_token& stop) {
  if (!model_.synced()) return false;
  if (term != listed_term_) {
    CARVE_TRY_VOID(list());
    listed_term_ = term;
    last_read_ = clock_.now();
  }
  std::erase_if(pending_, [this](const auto& one) { return seen(one.first, one.second); });
  if (!pending_.empty() && clock_.now() >= last_read_ + kPatience) {
    const auto read = read_pending(term, stop);
    last_read_ = clock_.now();
    CARVE_TRY_VOID(read);
  }
  return pending_.empty();
}

void TakeoverResync::step(const std::stop_token& stop) {
  std::uint64_t term = 0;
  {
    const MutexLock lock(mutex_);
    if (requested_ == known_term_) return;
    term = requested_;
  }
  auto result = resync(term, stop);
  const MutexLock lock(mutex_);
  if (requested_ != term) return;
  if (result && *result) known_term_ = term;
  error_ = result ? std::nullopt : std::optional<Error>(std::move(result.error()));
}

void TakeoverResync::wait_for_request(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (requested_ == known_term_ && !stop.stop_requested()) request_.wait(lock, stop);
}

void TakeoverResync::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    wait_for_request(stop);
    step(stop);
    if (!clock_.sleep_for(kPoll, stop)) return;
  }
}

}  // namespace carve::control
