#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/events/event_recorder.h"
#include "app/plugins/node_pods.h"
#include "app/plugins/slot_list.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/dialects/dialect.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::plugins {

/// The device plugin. Allocate does not name the pod, so it returns a new, unique CDI name. The agent then finds the
/// pod in the background: in the kubelet's checkpoint, which contains that name, or else by PodResources. The pod's
/// record names the cards. PreStartContainer waits until the slices exist, or fails with the reason. A pod is always
/// identified by its UID and never guessed.
class DevicePlugin final : public SlotCalls {
 public:
  struct World {
    NodeSlices& slices;
    PodResources& kubelet;
    NodePods& pods;
    events::EventRecorder& notices;
    const Clock& clock;
    Log& log;
    std::function<void()> list_changed;      // called without a lock held
    std::function<std::string()> shut = {};  // why no slots are offered; empty: they are
    codec::DialectSettings dialects = {};    // for the environment variables of containers
    // Runs a job on another thread; jobs start in the order of the calls. False: it has stopped, and the job does not
    // run. Unset: the job runs on the calling thread.
    std::function<bool(std::function<void()> job)> post = {};
  };
  explicit DevicePlugin(World world);
  /// Waits for the jobs that it has posted.
  ~DevicePlugin() override;

  [[nodiscard]] std::vector<SlotDevice> list() const override;
  Result<std::string> allocate(const std::vector<std::string>& slots) override;
  void before_start(const std::vector<std::string>& slots, Answer answer) override;

  /// Call once, before serving: reads the containers of a previous agent from the kubelet's checkpoint.
  void restore();
  /// One round: list, owners, endings, records, slices, answers. Returns the time until the next round. It posts the
  /// calls of NodeSlices that may take long, as one job per pod at a time, so no pod waits for another pod's call.
  Clock::Duration step();
  /// Calls step() at every change and when the next round is due, until `stop`. Then answers all waiting calls, and
  /// waits for the jobs that run.
  void run(const std::stop_token& stop);
  /// Requests a round, because pods or cards changed.
  void poke();
  /// The waiting calls and their problems, for doctor and metrics.
  struct Open {
    std::size_t waiting = 0;
    std::vector<std::string> problems;
  };
  [[nodiscard]] Open open() const;
  /// Whether a container can get a slot now: the list that the kubelet sees contains a free healthy slot. Any thread.
  [[nodiscard]] bool offers() const;
  /// The starts that an agent would interrupt if it ended now, as text for people: containers of pods that are bound
  /// here and have no slices yet (the kubelet fails such a pod permanently while no agent serves), and containers that
  /// were allocated slots a moment ago and are about to start. Any thread.
  [[nodiscard]] std::vector<std::string> unfinished() const;

 private:
  /// One call of Allocate and what is known of its pod.
  struct Binding {
    std::vector<std::string> slots;  // sorted
    std::string device;
    Clock::Time since;
    std::string kubelet_uid;  // of the pod; empty: not known yet
    std::string container;
    std::string namespace_name;  // for texts, and to read the pod from the API server
    std::string pod;
    Owner owner;  // of the slices; empty UID: none yet
    bool ready = false;
    bool tried = false;  // its slices were or are being prepared
    bool begun = false;  // PreStartContainer was called for it, or a previous agent allocated it
    Error problem;
  };
  struct Waiter {
    std::vector<std::string> slots;
    Clock::Time deadline;
    bool asked = false;
    Answer answer;
  };
  /// An owner that still has slices after its pod has ended.
  struct Ending {
    Clock::Time since;
    Clock::Time next;  // when to try
  };

  // device_plugin.cc
  void refresh_list();
  void answer_waiters(const std::vector<std::string>* slots = nullptr);
  void read_late_pods();
  [[nodiscard]] std::optional<Result<void>> verdict(const Waiter& waiter) const REQUIRES(mutex_);
  void report_refusal(const Waiter& waiter, const Error& error);
  void clear_refusal(const std::vector<std::string>& slots);
  // slot_jobs.cc: the work of one pod on another thread
  void post(const std::string& uid, std::function<bool()> job);
  void done(const std::string& uid, bool again);
  void wait_for_jobs();
  void bind();
  bool bind_pod(const std::string& uid);
  bool bind_one(Binding binding);
  std::optional<Binding> next_of(const std::string& uid, const std::set<std::string>& tried) const;
  void end_due();
  bool end(const Owner& owner);
  void end_later(const Owner& owner);
  // slot_binding.cc: only for the thread of step()
  void identify();
  bool lookup_is_due(const std::vector<Binding>& open, bool* unknown_waiter);
  std::map<std::string, SlotEntry> entries_by_name(const std::vector<SlotEntry>& entries);
  bool identify_by_holder(Binding* binding, const std::vector<SlotHolder>& holders);
  void adopt(const std::vector<SlotEntry>& entries);
  void supersede(const Binding& winner);
  // slot_binding.cc: any thread, in a job of the binding's pod
  Result<void> try_bind(Binding* binding);
  Result<void> prepare(Binding* binding, PrepareRequest request);
  void note_try(const Binding& binding);
  bool store(const Binding& binding);
  [[nodiscard]] std::vector<Binding> unready() const;
  // slot_ending.cc: only for the thread of step()
  static bool overlap(const std::vector<std::string>& a, const std::vector<std::string>& b);  // both sorted
  void end_gone_pods();
  void forget_unused(const std::set<Owner>& holding, bool settled);
  [[nodiscard]] bool is_over(const std::string& uid, bool settled);
  [[nodiscard]] bool reported_over(const std::string& uid) const;  // any thread
  [[nodiscard]] bool still_listed(const std::string& uid);

  World world_;
  mutable Mutex mutex_;  // never held during I/O
  StopCondition changed_;
  bool poked_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Binding> bindings_ GUARDED_BY(mutex_);  // by device
  std::vector<Waiter> waiters_ GUARDED_BY(mutex_);
  SlotList list_ GUARDED_BY(mutex_);
  bool shut_ GUARDED_BY(mutex_) = false;
  std::set<std::string> in_checkpoint_ GUARDED_BY(mutex_);  // pod UIDs, as last read
  bool stopped_ GUARDED_BY(mutex_) = false;
  Clock::Time next_list_ GUARDED_BY(mutex_){};
  std::map<Owner, Ending> ending_ GUARDED_BY(mutex_);
  std::set<std::string> at_work_ GUARDED_BY(mutex_);  // UIDs of the pods of the posted jobs

  // Only for the thread of step().
  Clock::Time next_lookup_{};
  Clock::Duration lookup_pause_{};
  Clock::Time synced_since_{};
  std::optional<std::vector<std::string>> listed_;  // slots that PodResources lists, sorted; nullopt: not read
  Clock::Time listed_at_{};
};

}  // namespace carve::plugins
