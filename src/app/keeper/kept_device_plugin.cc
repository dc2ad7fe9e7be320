#include "app/keeper/kept_device_plugin.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

namespace carve::keeper {
namespace {

constexpr Clock::Duration kQuiet = std::chrono::seconds(5);
constexpr Clock::Duration kSendAgain = std::chrono::milliseconds(50);  // to an agent that does not read
constexpr const char* kNoAgent = "the node's agent has crashed and another one does not serve yet";

}  // namespace

std::vector<SlotDevice> KeptDevicePlugin::list() const {
  const MutexLock lock(mutex_);
  auto list = list_;
  if (stale_) {
    for (auto& slot : list) slot.healthy = false;
  }
  return list;
}

Result<std::string> KeptDevicePlugin::allocate(const std::vector<std::string>& slots) {
  const auto answer = std::make_shared<std::promise<Result<std::string>>>();
  add(true, slots, [answer](Result<std::string> given) { answer->set_value(std::move(given)); });
  return answer->get_future().get();
}

void KeptDevicePlugin::before_start(const std::vector<std::string>& slots, Answer answer) {
  add(false, slots, [answer = std::move(answer)](const Result<std::string>& given) {
    answer(given ? Result<void>() : tl::unexpected(given.error()));
  });
}

void KeptDevicePlugin::add(bool allocate, const std::vector<std::string>& slots, Reply reply) {
  if (slots.empty() || !std::all_of(slots.begin(), slots.end(), codec::is_slot_name))
    return reply(fail(Code::kInvalidArgument, "the kubelet's request has no slot name, or an invalid one"));
  std::string why;
  {
    const MutexLock lock(mutex_);
    if (closed_) {
      why = *closed_;
    } else {
      const auto deadline = world_.clock.now() + (allocate ? kAllocateWithin : kStartWithin);
      calls_.emplace(next_number_++, Call{allocate, slots, deadline, 0, std::move(reply)});
      reply = nullptr;
    }
  }
  // Only the keeper's thread sends calls: a call that an agent received twice would get two names there.
  if (!reply) return world_.poke();
  reply(fail(Code::kUnavailable, why));
}

void KeptDevicePlugin::settle(std::uint64_t number, Result<std::string> answer) {
  Reply reply;
  {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(number);
    if (found == calls_.end()) return;  // already refused
    reply = std::move(found->second.reply);
    calls_.erase(found);
  }
  reply(std::move(answer));
}

void KeptDevicePlugin::attach(Send send) {
  send_ = std::move(send);
  ++agents_;
  away_since_.reset();
  inherited_until_ = world_.clock.now() + kInherited;
  tick();
}

void KeptDevicePlugin::detach() {
  if (!send_) return;
  send_ = nullptr;
  said_.reset();
  away_since_ = world_.clock.now();
}

void KeptDevicePlugin::heard(const codec::SayList& list) {
  said_ = list;
  tick();
}

void KeptDevicePlugin::ask() {
  if (!send_) return;
  std::vector<std::pair<std::uint64_t, codec::KeeperWord>> words;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, call] : calls_) {
      if (call.asked_of == agents_) continue;
      words.emplace_back(number, call.allocate ? codec::KeeperWord(codec::AskAllocate{number, call.slots})
                                               : codec::KeeperWord(codec::AskStart{number, call.slots}));
    }
  }
  for (const auto& [number, word] : words) {
    if (!send_(word)) return;
    const MutexLock lock(mutex_);
    if (const auto found = calls_.find(number); found != calls_.end()) found->second.asked_of = agents_;
  }
}

void KeptDevicePlugin::refuse_late() {
  std::vector<std::uint64_t> late;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, call] : calls_) {
      if (call.deadline <= world_.clock.now()) late.push_back(number);
    }
  }
  for (const auto number : late) {
    settle(number, send_ ? fail(Code::kDeadlineExceeded, "the node's agent does not answer")
                         : fail(Code::kUnavailable, kNoAgent));
  }
}

/// Returns true when the list that the kubelet sees has changed.
bool KeptDevicePlugin::renew_list(Clock::Time now) {
  const bool stale = away_since_ && now - *away_since_ >= kAwayFor;
  const bool taken = said_ && (said_->settled || !listed_ || now >= inherited_until_);
  std::vector<SlotDevice> next;
  if (taken) {
    for (const auto& slot : said_->slots) next.push_back({slot.id, slot.healthy});
    listed_ = listed_ || said_->settled;
    said_.reset();
  }
  const MutexLock lock(mutex_);
  const bool changed = (taken && next != list_) || stale != stale_;
  if (taken) list_ = std::move(next);
  stale_ = stale;
  return changed;
}

Clock::Duration KeptDevicePlugin::tick() {
  const auto now = world_.clock.now();
  ask();
  refuse_late();
  if (renew_list(now)) world_.list_changed();
  Clock::Duration wait = kQuiet;
  if (said_) wait = std::min(wait, inherited_until_ - now);
  const MutexLock lock(mutex_);
  if (away_since_ && !stale_) wait = std::min(wait, *away_since_ + kAwayFor - now);
  for (const auto& [number, call] : calls_) {
    wait = std::min(wait, call.deadline - now);
    if (send_ && call.asked_of != agents_) wait = std::min(wait, kSendAgain);
  }
  return std::max(wait, Clock::Duration::zero());
}

void KeptDevicePlugin::close(const std::string& why) {
  std::vector<std::uint64_t> open;
  {
    const MutexLock lock(mutex_);
    if (!closed_) closed_ = why;
    for (const auto& [number, call] : calls_) open.push_back(number);
  }
  send_ = nullptr;
  for (const auto number : open) settle(number, fail(Code::kUnavailable, why));
}

std::size_t KeptDevicePlugin::waiting() const {
  const MutexLock lock(mutex_);
  return calls_.size();
}

}  // namespace carve::keeper
