#include "app/plugins/device_plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/plugins/remedy.h"

namespace carve::plugins {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kBarrier = seconds(20);   // the kubelet gives PreStartContainer 30
constexpr auto kAskBefore = seconds(2);  // the end of the barrier: the API server is read once
constexpr auto kListEvery = milliseconds(500);
constexpr auto kIdle = seconds(1);

constexpr const char* kAllocate = "Allocate";

std::string key_of(const std::vector<std::string>& slots) { return fmt::format("slots {}", fmt::join(slots, ", ")); }

}  // namespace

DevicePlugin::DevicePlugin(World world) : world_(std::move(world)) { refresh_list(); }

DevicePlugin::~DevicePlugin() { wait_for_jobs(); }

std::vector<SlotDevice> DevicePlugin::list() const {
  const MutexLock lock(mutex_);
  return shut_ ? std::vector<SlotDevice>() : list_.devices();
}

Result<std::string> DevicePlugin::allocate(const std::vector<std::string>& slots) {
  if (slots.empty()) return fail(Code::kInvalidArgument, "Allocate: no slots");
  auto promised = world_.slices.promise_device();
  if (!promised) {
    world_.notices.refused(kAllocate, fmt::format("{}: {}. {}", kAllocate, promised.error().what,
                                                  remedy(promised.error().code, Plugin::kSlots)));
    return tl::unexpected(promised.error());
  }
  world_.notices.settled(kAllocate);
  const auto& device = *promised;
  Binding binding;
  binding.slots = sorted(slots);
  binding.device = device;
  binding.since = world_.clock.now();
  binding.problem = {Code::kUnavailable, "the kubelet has not reported the pod of these slots yet"};
  {
    const MutexLock lock(mutex_);
    bindings_[device] = std::move(binding);
  }
  poke();
  return device;
}

void DevicePlugin::before_start(const std::vector<std::string>& slots, Answer answer) {
  Waiter waiter{sorted(slots), world_.clock.now() + kBarrier, false, std::move(answer)};
  std::optional<Result<void>> now;
  {
    const MutexLock lock(mutex_);
    for (auto& [device, binding] : bindings_) binding.begun = binding.begun || binding.slots == waiter.slots;
    now = verdict(waiter);
    if (!now && stopped_)
      now = fail(Code::kUnavailable, "the agent stops; the kubelet retries");
    if (!now) waiters_.push_back(waiter);
  }
  if (now && *now) clear_refusal(waiter.slots);
  if (now) return waiter.answer(*now);
  poke();
}

/// Success when all bindings of exactly these slots are ready: an init container and the container that inherits its
/// slots share them, and the slices of both must exist. nullopt: not decided yet.
std::optional<Result<void>> DevicePlugin::verdict(const Waiter& waiter) const {
  const Binding* open = nullptr;
  bool any = false;
  for (const auto& [device, binding] : bindings_) {
    if (binding.slots != waiter.slots) continue;
    any = true;
    if (!binding.ready) open = &binding;
  }
  if (any && open == nullptr) return Result<void>{};
  if (world_.clock.now() < waiter.deadline) return std::nullopt;
  if (!any) {
    return fail(Code::kAborted,
                "this agent did not allocate these slots, and the kubelet's checkpoint does not contain them");
  }
  return tl::unexpected(open->problem);
}

bool DevicePlugin::offers() const {
  const MutexLock lock(mutex_);
  if (shut_) return false;
  const auto& all = list_.devices();
  return std::any_of(all.begin(), all.end(), [this](const SlotDevice& one) REQUIRES(mutex_) {
    return one.healthy && std::none_of(bindings_.begin(), bindings_.end(), [&](const auto& entry) {
             return std::binary_search(entry.second.slots.begin(), entry.second.slots.end(), one.id);
           });
  });
}

void DevicePlugin::refresh_list() {
  const auto cards = world_.slices.cards();
  const bool shut = world_.shut && !world_.shut().empty();
  bool fresh = false;
  {
    const MutexLock lock(mutex_);
    std::set<std::string> used;
    for (const auto& [device, binding] : bindings_)
      used.insert(binding.slots.begin(), binding.slots.end());
    fresh = list_.update(cards, used) || shut != shut_;
    shut_ = shut;
    next_list_ = world_.clock.now() + kListEvery;
  }
  if (fresh && world_.list_changed) world_.list_changed();
}

/// Reads the pods of containers that will soon stop waiting from the API server, in case the watch is behind.
void DevicePlugin::read_late_pods() {
  std::vector<std::pair<std::string, std::string>> names;
  {
    const MutexLock lock(mutex_);
    for (auto& waiter : waiters_) {
      if (waiter.asked || world_.clock.now() + kAskBefore < waiter.deadline) continue;
      waiter.asked = true;
      for (const auto& [device, binding] : bindings_) {
        if (binding.slots == waiter.slots && !binding.ready && !binding.kubelet_uid.empty())
          names.emplace_back(binding.namespace_name, binding.pod);
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const auto& [namespace_name, name] : names) {
    if (const auto asked = world_.pods.ask(namespace_name, name); !asked)
      world_.log.warn("a pod cannot be read", {{"pod", namespace_name + "/" + name}, {"error", asked.error().what}});
  }
}

/// Reports a refusal on the pod, if it is known, and always on the Node.
void DevicePlugin::report_refusal(const Waiter& waiter, const Error& error) {
  codec::EventNote note;
  const auto fix = remedy(error.code, Plugin::kSlots);
  {
    const MutexLock lock(mutex_);
    for (const auto& [device, binding] : bindings_) {
      if (binding.slots != waiter.slots || binding.pod.empty()) continue;
      const auto pod = world_.pods.by_uid(binding.kubelet_uid);
      note = {"Pod",          binding.namespace_name,
              binding.pod,    pod ? pod->uid : "",
              "SliceRefused", fmt::format("container {}: {}. {}", binding.container, error.what, fix)};
    }
  }
  const auto name = note.uid.empty() ? key_of(waiter.slots) : fmt::format("pod {}/{}", note.namespace_name, note.name);
  world_.log.warn("container not started", {{"pod", name}, {"error", error.what}, {"hint", fix}});
  world_.notices.refused(key_of(waiter.slots), note.uid.empty() ? fmt::format("{}: {}. {}", name, error.what, fix)
                                                             : fmt::format("{}, {}", name, note.message));
  if (!note.uid.empty()) world_.notices.warn(std::move(note));
}

/// Removes the refusal of these slots: their container has started, or its pod has ended.
void DevicePlugin::clear_refusal(const std::vector<std::string>& slots) { world_.notices.settled(key_of(slots)); }

/// Answers the calls that are decided. `slots`: only those for these slots. Any thread.
void DevicePlugin::answer_waiters(const std::vector<std::string>* slots) {
  std::vector<std::pair<Waiter, Result<void>>> done;
  {
    const MutexLock lock(mutex_);
    std::vector<Waiter> still;
    for (auto& waiter : waiters_) {
      auto now = slots == nullptr || waiter.slots == *slots ? verdict(waiter) : std::nullopt;
      if (now) {
        done.emplace_back(std::move(waiter), std::move(*now));
      } else {
        still.push_back(std::move(waiter));
      }
    }
    waiters_ = std::move(still);
  }
  for (const auto& [waiter, answer] : done) {
    answer ? clear_refusal(waiter.slots) : report_refusal(waiter, answer.error());
    waiter.answer(answer);
  }
}

Clock::Duration DevicePlugin::step() {
  auto now = world_.clock.now();
  bool list_is_due = false;
  {
    const MutexLock lock(mutex_);
    list_is_due = now >= next_list_;
  }
  if (list_is_due) refresh_list();
  identify();
  read_late_pods();
  end_gone_pods();
  bind();
  answer_waiters();
  now = world_.clock.now();
  Clock::Duration wait = kIdle;
  {
    const MutexLock lock(mutex_);
    for (const auto& waiter : waiters_) {
      wait = std::min(wait, (waiter.asked ? waiter.deadline : waiter.deadline - kAskBefore) - now);
    }
    const bool open = std::any_of(bindings_.begin(), bindings_.end(), [](const auto& entry) {
      return entry.second.kubelet_uid.empty();
    });
    if (open) wait = std::min(wait, next_lookup_ - now);
    for (const auto& [owner, ending] : ending_) {
      if (!at_work_.contains(owner.uid)) wait = std::min(wait, ending.next - now);
    }
  }
  return std::max<Clock::Duration>(wait, milliseconds(1));
}

void DevicePlugin::poke() {
  {
    const MutexLock lock(mutex_);
    poked_ = true;
  }
  changed_.notify_all();
}

void DevicePlugin::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto wait = step();
    const auto end = std::chrono::steady_clock::now() + wait;
    MutexLock lock(mutex_);
    while (!poked_ && !stop.stop_requested() && std::chrono::steady_clock::now() < end) {
      changed_.wait_until(lock, stop, end);
    }
    poked_ = false;
  }
  std::vector<Waiter> left;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    left.swap(waiters_);
  }
  for (const auto& waiter : left)
    waiter.answer(fail(Code::kUnavailable, "the agent stops; the kubelet retries"));
  wait_for_jobs();
}

DevicePlugin::Open DevicePlugin::open() const {
  const MutexLock lock(mutex_);
  Open open;
  open.waiting = waiters_.size();
  for (const auto& [device, binding] : bindings_) {
    if (!binding.ready) open.problems.push_back(binding.problem.what);
  }
  return open;
}

}  // namespace carve::plugins
