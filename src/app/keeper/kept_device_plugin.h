#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "codec/keeper/words.h"
#include "port/kubelet.h"

namespace carve::keeper {

/// The device plugin across restarts of the agent. It sends each of the kubelet's calls to the agent that serves. If
/// that agent dies before it answers, the plugin sends the call to the next agent. A call that no agent answers in time
/// is refused. The list is the last one that an agent reported as settled. The kubelet's calls may come from any
/// thread; the other functions belong to the keeper's thread.
class KeptDevicePlugin final : public SlotCalls {
 public:
  /// The kubelet has no deadline for Allocate, but it admits no other pod during the call.
  static constexpr Clock::Duration kAllocateWithin = std::chrono::seconds(30);
  /// The kubelet's own deadline is 30 s, after which it retries.
  static constexpr Clock::Duration kStartWithin = std::chrono::seconds(28);
  /// After this long without an agent, the plugin lists the slots as unhealthy, because a pod that is sent to this node
  /// would wait unsuccessfully.
  static constexpr Clock::Duration kAwayFor = std::chrono::seconds(20);
  /// A new agent that has not queried its cards yet lists its slots as unhealthy. For this long the plugin keeps the
  /// list of the previous agent instead.
  static constexpr Clock::Duration kInherited = std::chrono::seconds(20);

  struct World {
    const Clock& clock;
    std::function<void()> list_changed;  // called without a lock, on the keeper's thread
    std::function<void()> poke;          // requests a call of tick(); any thread
  };
  using Send = std::function<bool(const codec::KeeperWord&)>;  // false: the agent cannot take it now

  explicit KeptDevicePlugin(World world) : world_(std::move(world)) {}

  [[nodiscard]] std::vector<SlotDevice> list() const override;
  /// Blocks until an agent has answered.
  ///   errors  the agent's; kInvalidArgument: `slots` is empty or contains a string that is no slot name;
  ///           kUnavailable: no agent served in time, or close() was called; kDeadlineExceeded: the agent did not
  ///           answer
  Result<std::string> allocate(const std::vector<std::string>& slots) override;
  void before_start(const std::vector<std::string>& slots, Answer answer) override;

  /// An agent serves: the plugin sends it all waiting calls.
  void attach(Send send);
  /// The agent has ended.
  void detach();
  void heard(const codec::SayList& list);
  void heard(const codec::AnswerAllocated& answer) { settle(answer.number, answer.device); }
  void heard(const codec::AnswerStart& answer) { settle(answer.number, std::string()); }
  void heard(const codec::AnswerRefused& answer) { settle(answer.number, fail(answer.code, answer.what)); }
  /// Sends new calls to the agent, refuses calls that waited too long, and updates the list. Returns the time until the
  /// next call.
  Clock::Duration tick();
  /// No agent will answer any more: refuses all waiting and future calls with this reason.
  void close(const std::string& why);
  /// The number of waiting calls.
  [[nodiscard]] std::size_t waiting() const;

 private:
  using Reply = std::function<void(Result<std::string>)>;
  struct Call {
    bool allocate = false;
    std::vector<std::string> slots;
    Clock::Time deadline;
    std::uint64_t asked_of = 0;  // the agent that received the call, by the value of agents_; 0: none
    Reply reply;
  };

  void add(bool allocate, const std::vector<std::string>& slots, Reply reply);
  void settle(std::uint64_t number, Result<std::string> answer);
  void ask();
  void refuse_late();
  bool renew_list(Clock::Time now);

  World world_;
  mutable Mutex mutex_;  // never held during input or output
  std::map<std::uint64_t, Call> calls_ GUARDED_BY(mutex_);
  std::uint64_t next_number_ GUARDED_BY(mutex_) = 1;
  std::vector<SlotDevice> list_ GUARDED_BY(mutex_);
  bool stale_ GUARDED_BY(mutex_) = false;
  std::optional<std::string> closed_ GUARDED_BY(mutex_);

  // Used by the keeper's thread only.
  Send send_;                 // empty: no agent
  std::uint64_t agents_ = 0;  // the number of attach() calls
  std::optional<Clock::Time> away_since_;
  std::optional<codec::SayList> said_;  // the list of the agent that serves, not adopted into list_ yet
  bool listed_ = false;                 // a settled list was adopted at least once
  Clock::Time inherited_until_{};
};

}  // namespace carve::keeper
