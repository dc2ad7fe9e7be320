#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "app/keeper/kept_door.h"
#include "app/keeper/restarts.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/kept_agent.h"

namespace carve::keeper {

/// One agent after the other behind one door. Starts the first, opens the door to the kubelet when it serves, follows
/// one that crashed by another, ends one that hangs, and ends with one that ended in order. One thread.
class Keeper {
 public:
  static constexpr Clock::Duration kAskAlive = std::chrono::seconds(5);
  /// An agent that says nothing for so long after it was asked whether it lives is killed. Its answer needs no disk, no
  /// driver and no API server.
  static constexpr Clock::Duration kDeaf = std::chrono::seconds(15);
  static constexpr Clock::Duration kLookAtDoor = std::chrono::milliseconds(100);

  struct World {
    KeptAgent& agent;
    KeptDoor& door;
    const Clock& clock;
    Log& log;
    std::function<Result<void>()> open;  // to the kubelet; once
    std::function<void()> close;         // nobody serves there any more; also when it is not open
    std::function<bool()> listening;     // the kubelet has registered the door and listens to its list
  };
  explicit Keeper(World world) : world_(std::move(world)) {}

  /// Told to end: so is the agent, and the keeper ends with it.
  void stop();
  /// What has come from the agent, and what is due. Returns when it wants to be called again.
  Clock::Duration step();
  /// The exit code, once all is over.
  [[nodiscard]] std::optional<int> over() const { return over_; }

 private:
  void start(Clock::Time now);
  void hear(const std::string& packet);
  void serving();
  void left();
  void ended(const ProcessEnd& end);
  void finish(int code);
  bool send(const codec::KeeperWord& word) { return world_.agent.send(codec::encode(word)); }
  Clock::Duration look_after(Clock::Time now);

  World world_;
  Restarts restarts_;
  std::uint64_t crashes_ = 0;
  bool running_ = false;
  bool serving_ = false;
  bool stopping_ = false;  // told to, or the agent has left by itself: no other one follows
  bool open_ = false;
  bool failed_ = false;  // to open the door
  Clock::Time start_at_{};
  std::optional<Clock::Time> asked_alive_;  // and nothing was heard since
  Clock::Time heard_at_{};
  std::optional<bool> told_listening_;  // the agent that lives
  bool unheard_ = false;                // it does not answer, and was killed for it
  std::optional<int> over_;
};

}  // namespace carve::keeper
