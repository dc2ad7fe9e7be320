#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "adapter/kubelet/workers.h"
#include "base/bell.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "codec/keeper/words.h"
#include "port/kubelet.h"

namespace carve::kubelet {

/// The slot door of an agent that has a keeper (src/app/keeper): what the kubelet asks comes over the keeper's line,
/// and the list goes there. The agent's counterpart of the slots in KubeletServer.
class KeptSlots {
 public:
  struct World {
    SlotCalls& calls;
    std::function<bool()> settled;  // list() tells of cards that were asked, not of an agent that just began
    Log& log;
  };
  /// `line`: the descriptor that the keeper gave; taken over.
  ///   errors  kInvalidArgument: it is no descriptor
  static Result<std::unique_ptr<KeptSlots>> open(int line, World world);
  /// Nobody calls the door any more, and it calls nobody.
  ~KeptSlots();

  /// Says that it serves, then answers until `stop`, or until the keeper's end (which is this process's too).
  void run(const std::stop_token& stop);
  /// The list is another one now. Any thread.
  void changed();
  /// The kubelet has registered the keeper's door and listens to its list. Any thread.
  [[nodiscard]] bool listening() const { return listening_; }
  /// This agent ends in order: the keeper closes the door. Returns when it has, after 3 s at the latest; run() runs.
  void leave();

 private:
  KeptSlots(Fd line, Bell wake, World world);
  void say(const codec::AgentWord& word);
  void say_list();
  void hear(const std::string& packet);

  Fd line_;
  Bell wake_;
  World world_;
  Workers local_{1};  // Allocate: one at a time, and it may wait for the disk
  std::atomic<bool> listening_ = false;
  std::mutex mutex_;
  std::condition_variable closed_changed_;
  bool closed_ = false;

  // The running thread's own.
  codec::SayList said_;
  bool said_any_ = false;
};

}  // namespace carve::kubelet
