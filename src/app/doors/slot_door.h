#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/doors/node_pods.h"
#include "app/doors/event_recorder.h"
#include "app/doors/slot_list.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/dialects/dialect.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::doors {

/// The device-plugin door. Allocate names nobody, so it answers a name that was never used before
/// and nothing else; whose it is, is found out at once behind its back (the kubelet's checkpoint:
/// exact, by that name; PodResources where the file does not tell), the pod's record says which
/// cards, and the slices stand before PreStartContainer, which waits for that and else says why
/// not. Identity is always a UID; nothing is guessed.
class SlotDoor final : public SlotCalls {
 public:
  struct World {
    NodeSlices& slices;
    PodResources& kubelet;
    NodePods& pods;
    EventRecorder& notices;
    const Clock& clock;
    Log& log;
    std::function<void()> list_changed;      // called without a lock held
    std::function<std::string()> shut = {};  // not empty: no slots are offered, and why
    codec::DialectSettings dialects = {};    // for what they promise inside of containers
  };
  explicit SlotDoor(World world);
  ~SlotDoor() override;

  [[nodiscard]] std::vector<SlotDevice> list() const override;
  Result<std::string> allocate(const std::vector<std::string>& slots) override;
  void before_start(const std::vector<std::string>& slots, Answer answer) override;

  /// Once, before serving: what the kubelet's checkpoint says about containers that an earlier life
  /// of this agent answered for.
  void restore();
  /// One round: list, owners, records, slices, endings, answers. Returns when it wants to be called
  /// again.
  Clock::Duration step();
  /// step() at every change, and when it wants to be called; then answers all that wait.
  void run(const std::stop_token& stop);
  /// Something changed: pods, cards.
  void poke();
  /// What waits and why, for doctor and metrics.
  struct Open {
    std::size_t waiting = 0;
    std::vector<std::string> problems;
  };
  [[nodiscard]] Open open() const;
  /// A container can be given a slot now: of those that the kubelet is told a healthy one is free. Any thread.
  [[nodiscard]] bool offers() const;
  /// What an agent that ends now would break off, for people: pods that are bound here and whose containers have no
  /// slices yet (the kubelet refuses them for good while nobody serves), and containers that were given slots a moment
  /// ago and are about to start. Any thread.
  [[nodiscard]] std::vector<std::string> unfinished() const;

 private:
  /// One answer to Allocate.
  struct Binding {
    std::vector<std::string> slots;  // sorted
    std::string device;
    Clock::Time since;
    std::string kubelet_uid;  // of the pod; empty: not known yet
    std::string container;
    std::string space;  // for people, and to ask the server
    std::string pod;
    Owner owner;  // of the slices; empty UID: none yet
    bool ready = false;
    bool begun = false;  // PreStartContainer came for it, or an earlier life of this agent gave it out
    Error problem;
  };
  struct Waiter {
    std::vector<std::string> slots;
    Clock::Time deadline;
    bool asked = false;
    Answer answer;
  };

  // slot_door.cc
  void refresh_list();
  void answer_waiters();
  void ask_late();
  [[nodiscard]] std::optional<Result<void>> verdict(const Waiter& waiter) const;
  void tell(const Waiter& waiter, const Error& error);
  void settle(const std::vector<std::string>& slots);
  // slot_binding.cc: the stepping thread's own
  void identify();
  bool time_to_ask(const std::vector<Binding>& open, bool* unknown_waiter);
  std::map<std::string, SlotEntry> entries_by_name(const std::vector<SlotEntry>& entries);
  bool identify_by_holder(Binding* binding, const std::vector<SlotHolder>& holders);
  void bind();
  void bind_one(Binding binding);
  Result<void> try_bind(Binding* binding);
  Result<void> prepare(Binding* binding, std::vector<Slice> slices, const Record* record);
  void store(const Binding& binding);
  void adopt(const std::vector<SlotEntry>& entries);
  void supersede(const Binding& winner);
  [[nodiscard]] std::vector<Binding> unready() const;
  // slot_ending.cc: the stepping thread's own
  static bool overlap(const std::vector<std::string>& a, const std::vector<std::string>& b);  // both sorted
  void end_gone_pods();
  void end_later(const Owner& owner);
  void forget_unused(const std::set<Owner>& holding, bool settled);
  [[nodiscard]] bool is_over(const std::string& uid, bool settled);
  [[nodiscard]] bool still_listed(const std::string& uid);

  World world_;
  mutable std::mutex mutex_;  // of what follows; never held across input or output
  std::condition_variable_any changed_;
  bool poked_ = false;
  std::map<std::string, Binding> bindings_;  // by device
  std::vector<Waiter> waiters_;
  SlotList list_;
  bool shut_ = false;
  std::set<std::string> in_checkpoint_;  // pod UIDs, as last read
  bool stopped_ = false;

  // The stepping thread's own.
  Clock::Time next_ask_{};
  Clock::Duration ask_pause_{};
  Clock::Time next_list_{};
  Clock::Time synced_since_{};
  std::map<Owner, Clock::Time> ending_;             // when to try again
  std::optional<std::vector<std::string>> listed_;  // slots that PodResources tells, sorted; nullopt: not asked
  Clock::Time listed_at_{};
};

}  // namespace carve::doors
