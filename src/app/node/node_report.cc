#include "app/node/node_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/node/labels.h"
#include "app/node/share_policies.h"
#include "app/node/program_errors.h"
#include "codec/node/card_modes.h"

namespace carve::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kLook = milliseconds(200);
constexpr auto kNodeWithin = std::chrono::seconds(10);  // then the policies by default apply
constexpr auto kModeSettles = seconds(5);
constexpr auto kFull =
    seconds(5);  // everything is compared again, even without a change
constexpr auto kAskRuntime = seconds(10);
constexpr auto kAskServer = seconds(20);  // rare, because every node of the cluster asks
constexpr auto kAskAgain = seconds(2);
constexpr auto kAway = seconds(5);  // a shorter time is a short network failure
constexpr auto kTellAgain = milliseconds(500);
constexpr auto kLeastBackOff = seconds(1);
constexpr auto kMostBackOff = seconds(30);
constexpr std::size_t kRemembered = 4096;

/// Whether a slice that was held is no longer held.
bool anything_freed(const std::vector<HeldSlice>& before, const std::vector<HeldSlice>& now) {
  return std::any_of(before.begin(), before.end(), [&](const HeldSlice& old) {
    return std::none_of(now.begin(), now.end(),
                        [&](const HeldSlice& one) { return one.slice == old.slice; });
  });
}

}  // namespace

NodeReport::NodeReport(std::string node, World world)
    : node_(std::move(node)),
      world_(std::move(world)),
      gpus_(node_, world_.api),
      status_(node_, world_.api, world_.clock),
      claims_(world_.api, world_.notices),
      totals_({world_.api, world_.clock, world_.totals, world_.dialects, world_.other_plugins}),
      cardless_(world_.notices, world_.clock) {}

void NodeReport::ask_runtime() {
  next_runtime_ = world_.clock.now() + kAskRuntime;
  const auto node = status_.seen();
  const auto facts = world_.runtime.ask();
  auto verdict = judge_runtime(facts, node ? node->runtime : "", world_.cdi_dir);
  const MutexLock lock(mutex_);
  // While the runtime does not answer, its last answer counts.
  if (!facts && runtime_.cdi != RuntimeVerdict::Cdi::kUnknown) return;
  if (verdict == runtime_) return;
  if (verdict.cdi != RuntimeVerdict::Cdi::kWith)
    world_.log.warn("the container runtime may not inject CDI devices",
                    {{"reason", verdict.reason}, {"message", verdict.message}});
  runtime_ = std::move(verdict);
}

std::string NodeReport::shut() const {
  const MutexLock lock(mutex_);
  return runtime_.cdi == RuntimeVerdict::Cdi::kWithout ? runtime_.message : std::string();
}

void NodeReport::count_unresolved(const std::vector<codec::NodePod>& pods, NodeFacts* facts) {
  if (unresolved_.size() > kRemembered) unresolved_.clear();
  for (const auto& pod : pods) {
    if (pod.ended) continue;
    for (const auto& container : pod.unresolved) {
      facts->unresolved.push_back(fmt::format("{}/{}/{}", pod.namespace_name, pod.name, container));
      if (!unresolved_.insert(pod.uid + "/" + container).second) continue;
      ++unresolved_seen_;
      world_.log.error("the container runtime did not find a container's CDI device",
                       {{"container", facts->unresolved.back()}, {"seen", unresolved_seen_}});
      world_.notices.warn(
          {"Pod", pod.namespace_name, pod.name, pod.uid, "DeviceNotResolved",
           fmt::format("container {}: the container runtime did not find the CDI device of its slice and "
                       "retries; if this persists, add {} to cdi_spec_dirs of the runtime's configuration",
                       container, world_.cdi_dir)});
    }
  }
  facts->unresolved_seen = unresolved_seen_;
}

NodeFacts NodeReport::facts_of(const GpuInventory& cards, const std::vector<codec::NodePod>& pods) {
  NodeFacts facts;
  facts.troubles = world_.slices.troubles();
  facts.cards = cards.cards;
  {
    const MutexLock lock(mutex_);
    facts.runtime = runtime_;
  }
  if (world_.not_published) facts.not_published = world_.not_published();
  if (facts.not_published.empty()) facts.not_published = gpu_error_;
  facts.refused = world_.notices.refusals();
  count_unresolved(pods, &facts);
  return facts;
}

void NodeReport::note(const char* what, std::string* last, std::string error) {
  if (error != *last && !error.empty()) world_.log.warn(what, {{"error", error}});
  *last = std::move(error);
}

Result<bool> NodeReport::publish(const GpuInventory& cards, const std::vector<HeldSlice>& holdings,
                                 const std::vector<codec::NodePod>& pods, Clock::Time now) {
  const auto node = status_.seen();
  if (!node) return fail(Code::kUnavailable, "Node " + node_ + " is not known yet");
  const bool asking = claims_.step(pods, holdings, now);
  auto wanted = gpu_objects(node_, cards, holdings, pods, claims_.names());
  for (auto& gpu : wanted) gpu.plugins = world_.plugins;
  if (world_.claims != nullptr) world_.claims->set(wanted);
  for (auto& event : program_error_notes(std::exchange(program_errors_, {}), wanted, pods))
    world_.notices.warn(std::move(event));
  const bool complete = world_.slices.troubles().gpu == GpuState::kOk;
  CARVE_TRY(const bool waiting, gpus_.step(wanted, complete, node->uid, now));
  return waiting || asking;
}

/// Writes to the Node that this agent is about to end, or that it serves and a previous one has ended. Before all other
/// writes, because pods wait for it.
void NodeReport::write_presence(Clock::Time now) {
  const bool coming = told_ == Presence::kComing && world_.serves && !world_.serves();
  const auto presence = leaving_ ? Presence::kLeaving : coming ? Presence::kComing : Presence::kServing;
  if (presence == told_ || now < next_presence_) return;
  next_presence_ = now + kTellAgain;
  const bool leaving = presence == Presence::kLeaving;
  if (const auto told = status_.tell(leaving_condition(leaving)); !told)
    return note("condition GPUAgentLeaving not written", &presence_error_, told.error().what);
  presence_error_.clear();
  next_presence_ = {};
  told_ = presence;
  world_.log.info(leaving ? "the Node shows that this agent is about to end" : "the Node shows that this agent serves");
}

/// Reports crashes of previous agents, once, when the Node is known.
void NodeReport::report_crashes() {
  if (world_.crashes == 0) return;
  const auto node = status_.seen();
  if (!node) return;
  world_.notices.warn({"Node", "default", node_, node->uid, "AgentCrashed",
                       fmt::format("the agent crashed and was restarted; crashes since its pod started: {}; running "
                                   "pods kept their cards and limits, starts waited; see the agent's log for the cause",
                                   std::exchange(world_.crashes, 0))},
                      "crashed");
}

/// Finds out whether the API server answers, with its smallest request, because watches notice a silent server only
/// after minutes. Reports an absence when it is over, because nothing can be written before: one event on the Node,
/// counted.
void NodeReport::check_api_server(Clock::Time now) {
  if (now < next_server_) return;
  const auto answer = world_.api.get("/version");
  const auto code = answer ? Code::kUnknown : answer.error().code;
  const bool away = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
  const auto after = world_.clock.now();
  next_server_ = after + (away ? kAskAgain : kAskServer);
  if (away) {
    if (!away_since_) {
      away_since_ = now;
      world_.log.warn("the API server does not answer", {{"error", answer.error().what}});
    }
    return;
  }
  const auto node = status_.seen();
  if (!away_since_ || !node) return;
  const auto gone = std::chrono::duration_cast<seconds>(after - *std::exchange(away_since_, std::nullopt));
  world_.log.info("the API server answers again", {{"seconds", gone.count()}});
  if (gone < kAway) return;
  world_.notices.warn({"Node", "default", node_, node->uid, "APIServerAway",
                       fmt::format("the API server did not answer this agent for {} s; running pods kept their cards "
                                   "and limits, starts waited; check this node's connection to the API server",
                                   gone.count())},
                      "away");
}

/// Sets the modes of the cards that the Node states, for its totals. A card with slices that its mode does not permit
/// counts for all requests until they have ended, because the kubelet compares the requests of running pods too. A new
/// mode counts after kModeSettles: the kubelet has admitted by then what was bound before.
void NodeReport::follow_card_modes(std::vector<Card>* cards, const std::vector<HeldSlice>& held, Clock::Time now) {
  const auto node = status_.seen();
  if (!node) return;
  const auto modes = codec::card_modes_of(node->labels, node->annotations);
  if (!modes.refused.empty())
    world_.notices.warn({"Node", "default", node_, node->uid, "CardModeRefused", modes.refused});
  const MutexLock lock(mutex_);
  for (std::size_t index = 0; index < cards->size(); ++index) {
    Card& card = (*cards)[index];
    const CardMode stated = modes.of(card.id, index);
    auto& [mode, since] = modes_.try_emplace(card.id, stated, Clock::Time()).first->second;
    if (mode != stated) {
      mode = stated;
      since = now;
    }
    const bool draining = std::any_of(held.begin(), held.end(), [&](const HeldSlice& one) {
      return one.slice.card == card.id && !permits(stated, one.slice.whole);
    });
    card.mode = draining || now < since + kModeSettles ? CardMode::kAny : stated;
  }
}

std::map<CardId, CardMode> NodeReport::modes() const {
  const MutexLock lock(mutex_);
  std::map<CardId, CardMode> all;
  for (const auto& [card, mode] : modes_) all.emplace(card, mode.first);
  return all;
}

/// Sets the Node's policies for compute when they have changed. What an administrator wrote wrongly changes nothing.
void NodeReport::follow_share_policies(const std::vector<Card>& cards, Clock::Time now) {
  if (shares_awaited_ == Clock::Time{}) shares_awaited_ = now + kNodeWithin;
  const auto node = status_.seen();
  if (!node && (shares_ || now < shares_awaited_)) return;
  const auto stated = node ? share_policies_on(*node, cards, world_.shares) : StatedSharePolicies{world_.shares, {}};
  if (!stated.refused.empty()) {
    world_.notices.warn({"Node", "default", node_, node->uid, "SharePolicyRefused", stated.refused});
    if (shares_) return;
  }
  if (shares_ == stated.policies) return;
  shares_ = stated.policies;
  world_.slices.divide_by(*shares_);
  world_.log.info("share policies", {{"policies", describe(*shares_)}});
}

void NodeReport::step() {
  const auto now = world_.clock.now();
  write_presence(now);
  report_crashes();
  check_api_server(now);
  if (now >= next_runtime_) ask_runtime();
  auto holdings = world_.slices.holdings();
  if (world_.wakes && anything_freed(held_, holdings)) status_.freed();
  // Pods wait for this write, so it is not subject to the back-off.
  const auto touched = status_.touch();
  if (!touched || *touched)
    note("Node annotation for waiting pods not written", &touch_error_, touched ? "" : touched.error().what);
  auto cards = world_.slices.cards();
  follow_card_modes(&cards.cards, holdings, now);
  follow_share_policies(cards.cards, now);
  const auto revision = world_.pods.revision();
  for (auto& error : world_.slices.take_program_errors()) {
    if (program_errors_.size() < NodeSlices::kMostProgramErrors) program_errors_.push_back(std::move(error));
  }
  const bool same = program_errors_.empty() && holdings == held_ && cards.cards == cards_ && revision == pods_seen_;
  held_ = std::move(holdings);
  if (now < not_before_ || (same && !open_ && !gpus_.dirty() && now < next_full_)) return;
  cards_ = cards.cards;
  pods_seen_ = revision;
  next_full_ = now + kFull;
  const auto pods = world_.pods.all();
  cardless_.step(pods, world_.other_plugins ? world_.other_plugins() : std::map<std::string, std::size_t>());
  const auto published = publish(cards, held_, pods, now);
  note("GPU objects not written", &gpu_error_, published ? "" : published.error().what);
  NodeWish wish;
  auto facts = facts_of(cards, pods);
  wish.totals = totals_.wanted(cards, status_.seen(), &facts);
  wish.labels = labels_of(cards);
  wish.labels_known = !cards.cards.empty();
  wish.conditions = conditions_of(facts);
  if (told_ == Presence::kServing) wish.conditions.push_back(leaving_condition(false));
  const auto told = status_.step(wish);
  note("Node not written", &status_error_, told ? "" : told.error().what);
  open_ = !published || !told || *published || *told;
  // After an error the API server is not called five times a second.
  if (published && told) {
    back_off_ = kLeastBackOff;
    return;
  }
  not_before_ = now + back_off_;
  back_off_ = std::min<Clock::Duration>(std::max<Clock::Duration>(back_off_, kLeastBackOff) * 2,
                                        kMostBackOff);
}

void NodeReport::run(const std::stop_token& stop) {
  do {
    step();
  } while (world_.clock.sleep_for(kLook, stop));
}

}  // namespace carve::node
