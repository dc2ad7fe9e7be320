#include "app/control/preempt/preemptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "app/control/bind/binder.h"
#include "app/control/preempt/nomination.h"
#include "app/control/preempt/preemption_candidates.h"
#include "app/control/schedule/requeuer.h"
#include "codec/cluster/eviction.h"

namespace carve::control {
namespace {

std::string path_of(const PodEntry& pod) { return pod_path(pod.object.ask.namespace_name, pod.object.ask.name); }

/// The owner has a slice on that node.
bool holds_on(const ClusterState& cluster, const std::string& node, const Owner& owner) {
  const auto found = cluster.find(node);
  return found != cluster.end() && !found->second->ledger.slices_of(owner).empty();
}

std::vector<std::string> names_of(const std::vector<Holder>& victims, const ClusterModel& model) {
  std::vector<std::string> names;
  for (const Holder& victim : victims) {
    const auto pod = model.pod(victim.owner.uid);
    names.push_back(pod ? pod->full_name() : victim.owner.uid);
  }
  return names;
}

Clock::Duration longest_grace(const std::vector<ClusterModel::Pod>& pods) {
  std::int64_t seconds = 0;
  for (const auto& pod : pods) seconds = std::max(seconds, pod->object.grace);
  return std::chrono::seconds(seconds);
}

}  // namespace

void Preemptor::record_event(const PodEntry& about, const char* reason, std::string message, bool warning) const {
  const auto& ask = about.object.ask;
  if (!world_.post_event) return;
  world_.post_event({"Pod", ask.namespace_name, ask.name, ask.uid, reason, std::move(message), warning});
}

PreemptionCandidates Preemptor::candidates(const std::vector<codec::Budget>& budgets) const {
  return preemption_candidates_of(world_.model, budgets,
                                  [this](const Owner& owner) { return protected_.contains(owner); });
}

FoundRoom Preemptor::find(const PodEntry& pod, const std::vector<std::string>& names,
                          const PreemptionCandidates& all) const {
  const auto policy = [&](const std::string& node) -> const PolicyRow& { return world_.policy(pod, node); };
  return find_room(*world_.model.snapshot(), pod.owner(), world_.model.within_quota(pod), pod.object.priority, names,
                   policy, all);
}

Preemptor::Pod Preemptor::waiting(const std::string& uid) const {
  auto pod = world_.model.pod(uid);
  return pod && pod->waits() ? pod : nullptr;
}

std::optional<Clock::Time> Preemptor::when_to_consider(const PodEntry& pod, Clock::Time now) const {
  const auto& uid = pod.object.ask.uid;
  if (pod.object.never_preempts || attempts_.contains(uid)) return std::nullopt;
  if (world_.node_nominator != nullptr && world_.node_nominator->is_trying(uid)) return now + kGap;
  if (const auto at = not_before_.find(uid); at != not_before_.end() && now < at->second) return at->second;
  // Another component nominated a node: the victims there are terminating, or will be known in a moment.
  const auto nominated = nominated_since_.find(uid);
  if (nominated != nominated_since_.end() && now < nominated->second + kNominated)
    return nominated->second + kNominated;
  const auto note = world_.unschedulable_pods.find(uid);
  if (note && now - note->at < kSettle && now - note->since < kPatience)
    return std::min(note->at + kSettle, note->since + kPatience);
  if (note && now - note->at <= kFresh) return now;
  if (!note && !pod.object.refused) return std::nullopt;
  const auto requeued = requeued_.find(uid);
  return requeued == requeued_.end() ? now : requeued->second + kRequeueAgain;
}

void Preemptor::consider(const PodEntry& pod, Clock::Time now) {
  const auto& uid = pod.object.ask.uid;
  not_before_[uid] = now + kRetry;
  const auto note = world_.unschedulable_pods.find(uid);
  std::vector<std::string> names;
  if (note) {
    names = *note->nodes;
  } else {
    const auto cluster = world_.model.snapshot();
    for (const auto& [name, state] : *cluster) names.push_back(name);
  }
  auto found = find(pod, names, candidates({}));
  if (found.room == Room::kNone) not_before_[uid] = now + kHopeless;
  if (found.room != Room::kForOthers) return;
  const bool fresh = note && now - note->at <= kFresh;
  if (!world_.leader.leads_until(now + 3 * Binder::kWrite)) {
    if (fresh && world_.forward_to_leader) world_.forward_to_leader({uid, names});
    return;
  }
  if (!fresh) return requeue(uid, found.node, now);
  if (world_.node_nominator != nullptr && !world_.node_nominator->exhausted(pod, note->since)) return;
  const auto budgets = read_budgets(world_.api);
  if (!budgets) {
    world_.log.warn("no pod is evicted: the PodDisruptionBudgets cannot be read", {{"error", budgets.error().what}});
    return;
  }
  found = find(pod, names, candidates(*budgets));
  if (found.room != Room::kForOthers) return;
  if (found.plan.cost.violations == 0) return make_room(pod, found, *budgets);
  ++blocked_by_budget_;
  not_before_[uid] = now + kBudgetAgain;
  record_event(pod, "RoomIsProtected",
               fmt::format("pods of lower priority hold the cards that this pod needs, but PodDisruptionBudgets "
                           "protect them: on node {}, {} of {} evictions are currently not allowed",
                           found.node, found.plan.cost.violations, found.plan.victims.size()),
               true);
}

void Preemptor::requeue(const std::string& uid, const std::string& node, Clock::Time now) {
  requeued_[uid] = now;
  const auto touched = touch_node(world_.api, world_.clock, node);
  if (!touched)
    world_.log.warn("waiting pods are not requeued: the node cannot be written",
                    {{"node", node}, {"error", touched.error().what}});
}

Result<void> Preemptor::nominate(const PodEntry& pod, const std::string& node) {
  const auto written =
      world_.api.patch(path_of(pod) + "/status", KubePatch::kMerge, codec::nomination_patch(pod.object, node));
  if (!written) return tl::unexpected(written.error());
  return {};
}

void Preemptor::make_room(const PodEntry& pod, const FoundRoom& found, const std::vector<codec::Budget>& budgets) {
  const auto& uid = pod.object.ask.uid;
  const auto epoch = world_.leader.epoch();
  std::vector<Pod> victims;
  NominatedReservation reservation{pod.owner(), pod.object.priority, found.plan.slices, {}};
  for (const Holder& victim : found.plan.victims) {
    const auto stored = world_.model.pod(victim.owner.uid);
    if (!stored) return;  // deleted meanwhile
    victims.push_back(stored);
    reservation.going.push_back(victim.owner);
  }
  const auto latest = world_.clock.now() + longest_grace(victims) + kLatest;
  const auto going = reservation.going;
  world_.model.put_nominated_reservation(found.node, std::move(reservation), latest);
  if (const auto named = nominate(pod, found.node); !named) {
    world_.log.warn("no pod is evicted: the pod's status cannot be written",
                    {{"pod", pod.full_name()}, {"error", named.error().what}});
    return undo(pod);
  }
  // The ledger may have changed during that write: the choice must still be the same.
  const auto again = find(pod, {found.node}, candidates(budgets));
  const bool same = again.room == Room::kForOthers && again.plan.victims == found.plan.victims;
  if (!same || !allowed_all(victims)) return undo(pod);
  if (!evict_all(pod, found, victims, epoch)) return;
  attempts_[uid] = {found.node, going, latest, {}, world_.clock.now()};
  ++made_;
}

void Preemptor::undo(const PodEntry& pod) {
  ++undone_;
  world_.model.drop_nominated_reservation(pod.object.ask.uid);
  (void)nominate(pod, "");  // a nomination that stays does no harm: it is only a preference
}

/// A single victim needs no dry run: its eviction either succeeds or changes nothing.
bool Preemptor::allowed_all(const std::vector<Pod>& victims) {
  return victims.size() == 1 || std::all_of(victims.begin(), victims.end(), [this](const Pod& victim) {
           return evict(*victim, true) == Answer::kEvicted;
         });
}

/// False: a victim cannot be evicted, and other victims must be chosen. The room of the victims that were already
/// evicted stays reserved for the pod.
bool Preemptor::evict_all(const PodEntry& pod, const FoundRoom& found, const std::vector<Pod>& victims,
                          std::uint64_t epoch) {
  std::size_t evicted = 0;
  for (const auto& victim : victims) {
    const bool leads = world_.leader.epoch() == epoch &&
                       world_.leader.leads_until(world_.clock.now() + Binder::kWrite);
    if (!leads || evict(*victim, false) != Answer::kEvicted) {
      if (evicted == 0) undo(pod);
      return false;
    }
    ++evicted;
    ++victims_;
    const auto cluster = world_.model.snapshot();
    const auto state = cluster->find(found.node);
    const auto had = state == cluster->end() ? std::vector<Slice>() : state->second->ledger.slices_of(victim->owner());
    record_event(*victim, "Preempted",
                 fmt::format("evicted for pod {} (priority {} > {}); held {}", pod.full_name(), pod.object.priority,
                             victim->object.priority, what_it_got(found.node, had)));
  }
  record_event(pod, "RoomIsMade",
               fmt::format("waits for {} on node {} to end (evicted because of lower priority)",
                           fmt::join(names_of(found.plan.victims, world_.model), ", "), found.node));
  world_.log.info("pods are evicted to make room for a pod",
                  {{"pod", pod.full_name()}, {"node", found.node}, {"victims", std::uint64_t{victims.size()}}});
  return true;
}

bool Preemptor::is_going(const PodEntry& victim) {
  const auto text = world_.api.get(path_of(victim));
  if (!text) return text.error().code == Code::kNotFound;
  const auto now = codec::parse_cluster_pod(*text);
  return now && (now->ask.uid != victim.object.ask.uid || now->deleting || now->ended);
}

Preemptor::Answer Preemptor::evict(const PodEntry& victim, bool dry) {
  const auto done = world_.api.create(path_of(victim) + "/eviction", codec::eviction_body(victim.object, dry));
  if (done) return Answer::kEvicted;
  switch (done.error().code) {
    case Code::kNotFound:
      return Answer::kEvicted;
    case Code::kInternal:
    case Code::kDeadlineExceeded:
      // 5xx, or no answer: the eviction may have taken effect. For a pod with two PodDisruptionBudgets the server also
      // returns 500, and does nothing; if it loses a race for a budget, it returns 504, and does nothing. A dry run
      // without an answer permits nothing. If the pod cannot be read either, it counts as not evicted: if it was
      // evicted, the watch shows it as terminating, and its room counts in the next choice.
      if (!dry && is_going(victim)) return Answer::kEvicted;
      break;
    case Code::kAlreadyExists:  // another pod has its name now; or another write came first
      if (is_going(victim)) return Answer::kEvicted;
      break;
    case Code::kFailedPrecondition:
      ++blocked_by_budget_;
      protected_[victim.owner()] = world_.clock.now() + kBudgetAgain;
      return Answer::kProtected;
    case Code::kResourceExhausted:
    case Code::kUnavailable:
      // Nothing was done, and the cause is not the victim: a costlier victim would not help.
      world_.log.warn("a pod is not evicted now: the API server does not take the request",
                      {{"pod", victim.full_name()}, {"error", done.error().what}});
      return Answer::kFailed;
    default:
      break;
  }
  protected_[victim.owner()] = world_.clock.now() + kBudgetAgain;
  world_.log.warn("a pod cannot be evicted", {{"pod", victim.full_name()}, {"error", done.error().what}});
  return Answer::kFailed;
}

/// Reserves the room for a nomination that this replica did not write, while pods on that node terminate. A previous
/// leader, the current leader (another replica) or kube-scheduler wrote it.
void Preemptor::adopt(const PodEntry& pod, const PreemptionCandidates& all, Clock::Time now) {
  const auto& node = pod.object.nominated;
  const auto cluster = world_.model.snapshot();
  const auto state = cluster->find(node);
  if (state == cluster->end()) return;
  auto reservation = reservation_of_nomination(pod, *state->second, all.going, world_.policy(pod, node));
  if (!reservation) {
    no_room_[pod.object.ask.uid] = now;
    return;
  }
  std::vector<Pod> pods;
  for (const Owner& owner : reservation->going) {
    if (auto stored = world_.model.pod(owner.uid)) pods.push_back(std::move(stored));
  }
  const auto latest = now + longest_grace(pods) + kLatest;
  attempts_[pod.object.ask.uid] = {node, reservation->going, latest, {}, {}};
  world_.model.put_nominated_reservation(node, std::move(*reservation), latest);
}

/// Nominates again while the room is kept, at most once per kRetry, even if the nomination is cleared more often.
void Preemptor::renominate(const PodEntry& pod, Attempt* attempt, Clock::Time now) {
  if (!pod.object.nominated.empty() || !attempt->nominated_at || now < *attempt->nominated_at + kRetry) return;
  if (!world_.leader.leads_until(now + 2 * Binder::kWrite)) return;
  attempt->nominated_at = now;
  // If the room is already free, kube-scheduler may have tried the pod before the nomination was back.
  if (nominate(pod, attempt->node) && attempt->free_since) requeue(pod.object.ask.uid, attempt->node, now);
}

void Preemptor::give_up(const PodEntry& pod, const Attempt& attempt, Clock::Time now) {
  const auto& uid = pod.object.ask.uid;
  ++given_up_;
  world_.model.drop_nominated_reservation(uid);
  abandoned_.insert(uid);
  not_before_[uid] = now + kLatest;
  world_.log.warn("the room that was made for a pod is given up: the pod did not use it",
                  {{"pod", pod.full_name()}, {"node", attempt.node}});
  if (world_.leader.leads_until(now + Binder::kWrite)) (void)nominate(pod, "");
}

void Preemptor::forget(const std::string& uid) {
  due_.erase(uid);
  not_before_.erase(uid);
  requeued_.erase(uid);
  no_room_.erase(uid);
  nominated_since_.erase(uid);
  abandoned_.erase(uid);
}

void Preemptor::collect(const Changes& changes, Clock::Time now) {
  // Of thousands of waiting pods, only a few have a higher priority than a pod that holds cards.
  const auto lowest = world_.model.lowest_held_priority();
  const bool all = changes.all || now >= resync_at_ || lowest < lowest_;
  lowest_ = lowest;
  if (!all) {
    for (const auto& uid : changes.pods) {
      if (waiting(uid)) {
        due_[uid] = now;
      } else {
        forget(uid);
      }
    }
    return;
  }
  resync_at_ = now + kResync;
  due_.clear();
  for (const auto& pod : world_.model.waiting()) due_[pod->object.ask.uid] = now;
  const auto gone = [&](const auto& one) { return !due_.contains(one.first); };
  std::erase_if(not_before_, gone);
  std::erase_if(requeued_, gone);
  std::erase_if(no_room_, gone);
  std::erase_if(nominated_since_, gone);
  std::erase_if(abandoned_, [&](const std::string& uid) { return !due_.contains(uid); });
}

bool Preemptor::maintain(const Pod& pod, const std::string& uid, Attempt* attempt, Clock::Time now, Clock::Time* next) {
  const auto cluster = world_.model.snapshot();
  const bool ending = std::any_of(attempt->victims.begin(), attempt->victims.end(),
                                  [&](const Owner& owner) { return holds_on(*cluster, attempt->node, owner); });
  if (!ending && !attempt->free_since) attempt->free_since = now;
  const bool too_late = now >= attempt->latest || (attempt->free_since && now >= *attempt->free_since + kFreeFor);
  // No victims: the node was nominated because it has room, and the nomination is cleared.
  const bool withdrawn = pod && attempt->victims.empty() && pod->object.nominated != attempt->node;
  if (!pod || withdrawn) {
    world_.model.drop_nominated_reservation(uid);
    return false;
  }
  if (too_late) {
    give_up(*pod, *attempt, now);
    return false;
  }
  renominate(*pod, attempt, now);
  *next = std::min(*next, attempt->latest);
  if (attempt->free_since) *next = std::min(*next, *attempt->free_since + kFreeFor);
  if (pod->object.nominated.empty() && attempt->nominated_at) *next = std::min(*next, *attempt->nominated_at + kRetry);
  return true;
}

/// Runs on every replica.
Clock::Time Preemptor::maintain_attempts(Clock::Time now) {
  auto next = Clock::Time::max();
  for (auto at = attempts_.begin(); at != attempts_.end();) {
    const auto pod = waiting(at->first);
    const bool goes_on = maintain(pod, at->first, &at->second, now, &next);
    if (!goes_on && pod) due_[at->first] = now;
    at = goes_on ? std::next(at) : attempts_.erase(at);
  }
  return next;
}

std::optional<Clock::Time> Preemptor::follow_nomination(const PodEntry& pod, std::optional<PreemptionCandidates>* all,
                                                        Clock::Time now) {
  const auto& uid = pod.object.ask.uid;
  if (pod.object.nominated.empty()) {
    nominated_since_.erase(uid);
    return std::nullopt;
  }
  if (attempts_.contains(uid) || abandoned_.contains(uid)) return std::nullopt;
  // While the node nominator tries nodes for this pod, it reserves the room itself.
  if (world_.node_nominator != nullptr && world_.node_nominator->is_trying(uid)) return now + kGap;
  nominated_since_.try_emplace(uid, now);
  if (const auto at = no_room_.find(uid); at != no_room_.end() && now < at->second + kRetry) return at->second + kRetry;
  if (!*all) *all = candidates({});
  adopt(pod, **all, now);
  return attempts_.contains(uid) ? std::nullopt : std::optional(now + kRetry);
}

Clock::Time Preemptor::step() {
  const auto now = world_.clock.now();
  const auto changes = queue_.take();
  if (!world_.model.synced()) return now + kResync;  // the queue wakes this thread when the model is synced
  collect(changes, now);
  std::erase_if(protected_, [&](const auto& one) { return one.second <= now; });
  auto next = std::min(resync_at_, maintain_attempts(now));
  std::optional<PreemptionCandidates> all;  // costs a scan of all pods, so at most once per step
  std::vector<Pod> higher;
  for (auto at = due_.begin(); at != due_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    ++examined_;
    const auto pod = waiting(at->first);
    const auto again = pod ? follow_nomination(*pod, &all, now) : std::nullopt;
    const auto when = pod && pod->object.priority > lowest_ ? when_to_consider(*pod, now) : std::nullopt;
    if (when && *when <= now) higher.push_back(pod);
    if (!again && !when) {
      at = due_.erase(at);
    } else {
      at->second = std::min(again.value_or(Clock::Time::max()), when.value_or(Clock::Time::max()));
      ++at;
    }
  }
  std::sort(higher.begin(), higher.end(), [](const Pod& a, const Pod& b) {
    return std::pair(-std::int64_t{a->object.priority}, a->object.ask.uid) <
           std::pair(-std::int64_t{b->object.priority}, b->object.ask.uid);
  });
  if (higher.size() > kPerStep) higher.resize(kPerStep);  // the others stay due
  for (const auto& pod : higher) {
    consider(*pod, world_.clock.now());
    due_[pod->object.ask.uid] = not_before_[pod->object.ask.uid];
  }
  for (const auto& [uid, at] : due_) next = std::min(next, at);
  return std::max(next, now + kGap);
}

void Preemptor::run(const std::stop_token& stop) {
  queue_.run(world_.clock, stop, [this] { return step(); });
}

Preemptor::Stats Preemptor::stats() const { return {made_, victims_, blocked_by_budget_, undone_, given_up_}; }

}  // namespace carve::control
