#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "app/keeper/kept_device_plugin.h"
#include "app/keeper/restarts.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/kept_agent.h"

namespace carve::keeper {

/// Runs one agent at a time behind one device plugin. The keeper starts the first agent, opens the device plugin's
/// socket when that agent serves, starts another agent after a crash or a change of settings, kills an agent that
/// hangs, and ends when an agent ends in order (exit code 0). One thread.
class Keeper {
 public:
  static constexpr Clock::Duration kAskAlive = std::chrono::seconds(5);
  /// The keeper kills an agent that sends nothing for this long after AskAlive. The answer needs no disk, no driver and
  /// no API server.
  static constexpr Clock::Duration kDeaf = std::chrono::seconds(15);
  static constexpr Clock::Duration kLookAtPlugin = std::chrono::milliseconds(100);

  struct World {
    KeptAgent& agent;
    KeptDevicePlugin& plugin;
    const Clock& clock;
    Log& log;
    std::function<Result<void>()> open;  // opens the device plugin's socket; called once
    std::function<void()> close;         // closes it; also called when it is not open
    std::function<bool()> listening;     // true: the kubelet has registered the device plugin and watches its list
    // After a change of settings: whether this node still serves slots, so that the next agent can serve it. False: the
    // keeper ends with kSettingsChanged. Unset: yes.
    std::function<bool()> stays = {};
  };
  explicit Keeper(World world) : world_(std::move(world)) {}

  /// Sends SIGTERM to the agent; the keeper ends when the agent has ended.
  void stop();
  /// Handles the agent's packets and everything that is due. Returns the time until the next call.
  Clock::Duration step();
  /// The exit code, once the keeper has ended.
  [[nodiscard]] std::optional<int> over() const { return over_; }

 private:
  void start(Clock::Time now);
  void hear(const std::string& packet);
  void serving();
  void left();
  void ended(const ProcessEnd& end);
  void settings_changed(Clock::Time now);
  void finish(int code);
  bool send(const codec::KeeperWord& word) { return world_.agent.send(codec::encode(word)); }
  Clock::Duration look_after(Clock::Time now);

  World world_;
  Restarts restarts_;
  std::uint64_t crashes_ = 0;
  bool running_ = false;
  bool serving_ = false;
  bool stopping_ = false;  // stop() was called, or the agent has left the keeper by itself: no other agent is started
  bool open_ = false;
  bool failed_ = false;  // the socket could not be opened
  Clock::Time start_at_{};
  std::optional<Clock::Time> asked_alive_;  // when AskAlive was sent; empty: the agent has sent something since
  Clock::Time heard_at_{};
  std::optional<bool> told_listening_;  // the last TellListening that the running agent received
  bool unheard_ = false;                // the running agent was killed because it does not answer
  std::optional<int> over_;
};

}  // namespace carve::keeper
