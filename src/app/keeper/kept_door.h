#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/keeper/words.h"
#include "port/kubelet.h"

namespace carve::keeper {

/// The slot door while agents come and go. What the kubelet asks is put to the agent that serves, and again to the next
/// one when it dies before it has answered; what no agent answers in time is refused. The list is the last one that an
/// agent knew to be right. The kubelet's calls come from any thread; the rest is the keeper's own thread's.
class KeptDoor final : public SlotCalls {
 public:
  /// The kubelet has no deadline for Allocate, but admits nobody else meanwhile.
  static constexpr Clock::Duration kAllocateWithin = std::chrono::seconds(30);
  /// The kubelet's own deadline is 30 s, and it asks again.
  static constexpr Clock::Duration kStartWithin = std::chrono::seconds(28);
  /// So long without an agent, and the slots are told to be unhealthy: what is sent here would wait in vain.
  static constexpr Clock::Duration kAwayFor = std::chrono::seconds(20);
  /// A new agent that has not asked its cards yet lists them as unhealthy. So long the list of the last one stands.
  static constexpr Clock::Duration kInherited = std::chrono::seconds(20);

  struct World {
    const Clock& clock;
    std::function<void()> list_changed;  // called without a lock held, on the keeper's thread
    std::function<void()> poke;          // tick() is wanted; any thread
  };
  using Send = std::function<bool(const codec::KeeperWord&)>;  // false: not taken now

  explicit KeptDoor(World world) : world_(std::move(world)) {}

  [[nodiscard]] std::vector<SlotDevice> list() const override;
  /// Waits for the agent's answer.
  ///   errors  the agent's; kInvalidArgument: no slot's name; kUnavailable: no agent answered in time
  Result<std::string> allocate(const std::vector<std::string>& slots) override;
  void before_start(const std::vector<std::string>& slots, Answer answer) override;

  /// An agent serves: whoever waits is put to it.
  void attach(Send send);
  /// It is gone.
  void detach();
  void heard(const codec::SayList& list);
  void heard(const codec::AnswerAllocated& answer) { settle(answer.number, answer.device); }
  void heard(const codec::AnswerStart& answer) { settle(answer.number, std::string()); }
  void heard(const codec::AnswerRefused& answer) { settle(answer.number, fail(answer.code, answer.what)); }
  /// Puts what is new to the agent, refuses what waited too long, looks after the list. Returns when it wants to be
  /// called again.
  Clock::Duration tick();
  /// Nobody will answer any more: what waits and what comes is refused with this reason.
  void close(const std::string& why);
  /// Calls that wait.
  [[nodiscard]] std::size_t waiting() const;

 private:
  using Reply = std::function<void(Result<std::string>)>;
  struct Call {
    bool allocate = false;
    std::vector<std::string> slots;
    Clock::Time deadline;
    std::uint64_t asked_of = 0;  // the agent that has it, by attach()'s count; 0: none
    Reply reply;
  };

  void add(bool allocate, const std::vector<std::string>& slots, Reply reply);
  void settle(std::uint64_t number, Result<std::string> answer);
  void ask();
  void refuse_late();
  bool renew_list(Clock::Time now);

  World world_;
  mutable std::mutex mutex_;  // of what follows; never held across input or output
  std::map<std::uint64_t, Call> calls_;
  std::uint64_t next_number_ = 1;
  std::vector<SlotDevice> list_;
  bool stale_ = false;
  std::optional<std::string> closed_;

  // The keeper's thread's own.
  Send send_;  // empty: no agent
  std::uint64_t agents_ = 0;
  std::optional<Clock::Time> away_since_;
  std::optional<codec::SayList> said_;  // by the agent that serves, and not taken over yet
  bool listed_ = false;                 // list_ was right once
  Clock::Time inherited_until_{};
};

}  // namespace carve::keeper
