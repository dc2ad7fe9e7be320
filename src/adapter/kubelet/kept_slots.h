#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "adapter/kubelet/workers.h"
#include "base/bell.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/keeper/words.h"
#include "port/kubelet.h"

namespace carve::kubelet {

/// The device plugin of an agent that has a keeper (src/app/keeper): the kubelet's calls arrive over the connection to
/// the keeper, and the list is sent there. It takes the place of the slots in KubeletServer.
class KeptSlots {
 public:
  struct World {
    SlotCalls& calls;
    std::function<bool()> settled;  // true: list() is from queried cards, not from an agent that has just started
    Log& log;
  };
  /// `line`: the descriptor of the connection to the keeper; this object closes it.
  ///   errors  kInvalidArgument: it is not an open descriptor
  static Result<std::unique_ptr<KeptSlots>> open(int line, World world);
  /// Destroy it only when no thread uses it.
  ~KeptSlots();

  /// Tells the keeper that the agent serves, then answers calls until `stop` or until the keeper ends (which also ends
  /// this process).
  void run(const std::stop_token& stop);
  /// Call it when the list has changed. Any thread.
  void changed();
  /// True when the kubelet has registered the keeper's device plugin and watches its list. Any thread.
  [[nodiscard]] bool listening() const { return listening_; }
  /// Call it, while run() runs, when this agent ends in order: the keeper then closes its socket. Returns when it
  /// is closed, after 3 s at the latest.
  void leave();
  /// Sends nothing more to the keeper. Call it when this agent ends to be started again at once: the calls that it has
  /// not answered wait for the next agent, as after a crash. Any thread.
  void mute() { muted_ = true; }

 private:
  KeptSlots(Fd line, Bell wake, World world);
  void say(const codec::AgentWord& word);
  void say_list();
  void hear(const std::string& packet);

  Fd line_;
  Bell wake_;
  World world_;
  Workers local_{ThreadName("slot-allocate"), 1};  // for Allocate: one call at a time, which may wait for the disk
  std::atomic<bool> listening_ = false;
  std::atomic<bool> muted_ = false;
  Mutex mutex_;
  Condition closed_changed_;
  bool closed_ GUARDED_BY(mutex_) = false;

  // Used by the thread of run() only.
  codec::SayList said_;
  bool said_any_ = false;
};

}  // namespace carve::kubelet
