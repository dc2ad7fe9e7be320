#include "app/control/state/claim_book.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codec/claims/elastic_objects.h"
#include "codec/cluster/notes.h"

namespace carve::control {
namespace {

/// The sink of one kind: `put` stores an object, `keep` removes those that `put` did not store since.
KubeSink sink_of(std::atomic<bool>* answered, const ChangeFeed& changes, std::function<void(const std::string&)> put,
                 std::function<void()> clear, std::function<void(const codec::ObjectName&)> remove) {
  return {[=, &changes](const std::vector<std::string>& all) {
            clear();
            for (const auto& text : all) put(text);
            *answered = true;
            changes.all();
          },
          [=, &changes](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) {
              put(change.object);
            } else {
              remove(codec::read_object_name(change.object));
            }
            changes.all();
          },
          [=](const Error& error) {
            if (error.code == Code::kNotFound) *answered = true;  // the CRDs are not installed: there are no claims
          }};
}

}  // namespace

KubeSink ClaimBook::classes() {
  return sink_of(
      &answered_[0], changes_, [this](const std::string& text) { put_class(text); },
      [this] {
        const MutexLock lock(mutex_);
        classes_.clear();
      },
      [this](const codec::ObjectName& gone) {
        const MutexLock lock(mutex_);
        classes_.erase(gone.name);
      });
}

KubeSink ClaimBook::gpus() {
  return sink_of(
      &answered_[1], changes_, [this](const std::string& text) { put_gpu(text); },
      [this] {
        const MutexLock lock(mutex_);
        gpus_.clear();
      },
      [this](const codec::ObjectName& gone) {
        const MutexLock lock(mutex_);
        gpus_.erase(gone.name);
      });
}

KubeSink ClaimBook::claims() {
  return sink_of(
      &answered_[2], changes_, [this](const std::string& text) { put_claim(text); },
      [this] {
        const MutexLock lock(mutex_);
        claims_.clear();
      },
      [this](const codec::ObjectName& gone) {
        const MutexLock lock(mutex_);
        claims_.erase({gone.namespace_name, gone.name});
        users_.erase(gone.uid);
      });
}

void ClaimBook::unreadable(const char* kind, const Error& error) {
  log_.error("an object is skipped, because it cannot be parsed", {{"kind", kind}, {"error", error.what}});
}

void ClaimBook::put_class(const std::string& text) {
  auto made = codec::parse_elastic_class(text);
  if (!made) return unreadable("ElasticGPUClass", made.error());
  const MutexLock lock(mutex_);
  classes_[made->name] = std::move(*made);
}

void ClaimBook::put_gpu(const std::string& text) {
  auto made = codec::parse_elastic_gpu(text, settings_);
  if (!made) return unreadable("ElasticGPU", made.error());
  const MutexLock lock(mutex_);
  gpus_[made->name] = std::move(*made);
}

void ClaimBook::put_claim(const std::string& text) {
  auto made = codec::parse_elastic_claim(text, settings_);
  if (!made) return unreadable("ElasticGPUClaim", made.error());
  const MutexLock lock(mutex_);
  claims_[{made->namespace_name, made->name}] = std::move(*made);
}

bool ClaimBook::empty() const {
  const MutexLock lock(mutex_);
  return claims_.empty() && gpus_.empty();
}

ClaimWorld ClaimBook::world() const {
  const MutexLock lock(mutex_);
  ClaimWorld world;
  world.classes = classes_;
  world.gpus = gpus_;
  world.claims = claims_;
  return world;
}

Result<Request> ClaimBook::part_locked(const std::string& namespace_name, const std::string& name,
                                       const std::string& pod, std::string* uid) const {
  const auto refuse = [&](std::string why) {
    return fail(Code::kFailedPrecondition, fmt::format("claim {}: {}", name, std::move(why)));
  };
  const auto found = claims_.find({namespace_name, name});
  if (found == claims_.end()) return refuse("there is no ElasticGPUClaim of this name in namespace " + namespace_name);
  const ElasticClaim& claim = found->second;
  *uid = claim.uid;
  const auto by = classes_.find(claim.class_name);
  const std::uint32_t most = by == classes_.end() ? 1 : by->second.pods;
  const auto users = users_.find(claim.uid);
  const bool uses = users != users_.end() && users->second.contains(pod);
  if (claim.deleting && !uses) return refuse("it is being deleted");
  if (!uses && users != users_.end() && users->second.size() >= most)
    return refuse(
        fmt::format("{} pod(s) use it, and class {} permits {}", users->second.size(), claim.class_name, most));
  Request request;
  if (!claim.gpu.empty()) {
    const auto gpu = gpus_.find(claim.gpu);
    if (gpu == gpus_.end() || !gpu->second.claim || gpu->second.claim->uid != claim.uid)
      return refuse(claim.message.empty() ? "it is lost" : claim.message);
    if (gpu->second.phase == to_string(GpuPhase::kFailed))
      return refuse("ElasticGPU " + claim.gpu + ": " + gpu->second.message);
    request = gpu->second.request;
    const Provisioner* provisioner = by == classes_.end() ? nullptr : provisioner_named(by->second.provisioner);
    if (provisioner != nullptr) request = request_by(*provisioner, by->second, request);
    const auto known = cards_.find(claim.gpu);
    request.constraints.cards = known == cards_.end()
                                    ? std::vector<CardId>(gpu->second.cards.begin(), gpu->second.cards.end())
                                    : known->second;
  } else {
    const bool waits = by != classes_.end() && by->second.waits && by->second.error.empty() && claim.error.empty();
    const Provisioner* provisioner = waits ? provisioner_named(by->second.provisioner) : nullptr;
    if (provisioner == nullptr || !provisioner->unsupported.empty())
      return refuse("it is not bound" + (claim.message.empty() ? std::string() : ": " + claim.message));
    request = request_by(*provisioner, by->second, claim.request);
  }
  return part_of(std::move(request), 1, most);
}

Result<Request> ClaimBook::part_for(const std::string& namespace_name, const std::string& claim,
                                    const std::string& pod) const {
  std::string uid;
  const MutexLock lock(mutex_);
  return part_locked(namespace_name, claim, pod, &uid);
}

Result<Request> ClaimBook::take(const std::string& namespace_name, const std::string& claim, const std::string& pod) {
  std::string uid;
  bool first = false;
  Result<Request> part = fail(Code::kInternal, "unset");
  {
    const MutexLock lock(mutex_);
    part = part_locked(namespace_name, claim, pod, &uid);
    if (part) first = users_[uid].insert(pod).second;
  }
  if (first) changes_.all();
  return part;
}

void ClaimBook::know_cards(GpuCards cards) {
  const MutexLock lock(mutex_);
  cards_ = std::move(cards);
}

ClaimBook::Users ClaimBook::users() const {
  const MutexLock lock(mutex_);
  return users_;
}

void ClaimBook::keep_users(const Users& before, const Users& all) {
  const MutexLock lock(mutex_);
  Users kept = all;
  for (const auto& [uid, pods] : users_) {
    const auto known = before.find(uid);
    for (const auto& pod : pods) {
      if (known == before.end() || !known->second.contains(pod)) kept[uid].insert(pod);
    }
  }
  users_ = std::move(kept);
}

bool PodRequests::uses_claims(const codec::PodAsk& pod) const {
  return claims_ != nullptr && codec::carries_slots(pod) && !codec::claims_of(pod).empty();
}

Result<std::vector<PartRequest>> PodRequests::parts(const codec::PodAsk& pod, bool take) const {
  CARVE_TRY(auto all, codec::requests_by_slots(pod, settings_));
  if (!uses_claims(pod)) return all;
  for (const auto& use : codec::claims_of(pod)) {
    const auto container = std::find_if(pod.containers.begin(), pod.containers.end(),
                                        [&](const codec::ContainerAsk& one) { return one.name == use.container; });
    if (container == pod.containers.end()) continue;
    auto part = take ? claims_->take(pod.namespace_name, use.claim, pod.uid)
                     : claims_->part_for(pod.namespace_name, use.claim, pod.uid);
    if (!part) return fail(part.error().code, "container " + use.container + ": " + part.error().what);
    const Phase phase = container->kind == codec::ContainerKind::kInit ? Phase::kInit : Phase::kRun;
    std::erase_if(all, [&](const PartRequest& one) { return one.part == use.container; });
    all.push_back({use.container, phase, std::move(*part)});
  }
  return all;
}

}  // namespace carve::control
