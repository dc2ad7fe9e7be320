#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/card_watch.h"
#include "app/agent/slice_table.h"
#include "app/agent/unexplained.h"
#include "app/agent/watchdog.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/ledger/ledger.h"
#include "core/policy/policy.h"
#include "port/agent_api.h"
#include "port/node_slices.h"
#include "port/pages.h"

namespace carve {

/// The only writer of the machine's ledger. Order of every change: journal (synced), cgroup, pages, answer. Order of
/// every removal: pages, cgroup, ledger, journal. So the journal covers all that runs, regardless of the step at which
/// a process dies, and restore() removes what does not run. Safe from any thread.
class Agent final : public AgentApi, public NodeSlices {
 public:
  Agent(AgentConfig config, AgentWorld world);

  /// Called once, before serving: reads the cards, then compares the journal's slices with cgroups and arbiter. A
  /// driver or an arbiter that is away is not an error; watch() catches up later.
  ///   errors  kDataLoss: the journal's slices contradict each other
  Result<void> restore();
  Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                         const std::function<bool()>& gone) override;
  Result<void> join(const Caller& caller, const std::string& slice) override;
  Result<void> release(const Caller& caller, const std::string& slice, bool kill) override;
  Result<AgentView> view(const Caller& caller) override;
  // prepare.cc
  Result<std::string> promise_device() override;
  Result<Prepared> prepare(const PrepareRequest& request) override;
  Result<void> unprepare(const Owner& owner) override;
  [[nodiscard]] std::vector<Slice> held() const override;
  [[nodiscard]] std::vector<HeldSlice> holdings() const override;
  [[nodiscard]] NodeTroubles troubles() const override;
  [[nodiscard]] std::vector<ProgramError> take_program_errors() override;
  [[nodiscard]] GpuInventory cards() const override;

  /// Ends slices with an empty cgroup. Cheap; called at every change of a cgroup and a few times a second.
  void reap();
  /// One round of the second line; also fixes what could not be done while driver or arbiter was away. Takes as long as
  /// the driver's library does.
  void watch();
  /// Takes the driver's reports and its state, and updates the verdicts on all cards. Never waits for the driver.
  void judge_cards(const std::vector<GpuEvent>& events);
  /// The three loops. They run until `stop`.
  void run_reaper(const std::stop_token& stop);
  void run_watch(Clock& clock, const std::stop_token& stop);
  void run_health(const std::stop_token& stop);

 private:
  [[nodiscard]] std::vector<std::string> ids_in_cgroups() const;  // of slices that end with their cgroup
  // lifecycle.cc; under commit_
  Result<Grant> try_allocate(const Caller& caller, const AllocateRequest& request);
  Result<void> bring_up(LiveSlice& slice);
  void keep_back(const LiveSlice& slice);
  void take_down(LiveSlice& slice);
  void finish(const std::string& id, const std::string& why);
  [[nodiscard]] std::vector<JournalEvent> events_without(const LiveSlice& slice) const;
  void retry_drops();
  [[nodiscard]] PageOrder order_of(const LiveSlice& slice) const;
  [[nodiscard]] std::string slice_folder_of(const LiveSlice& slice) const;
  [[nodiscard]] SliceDevice device_of(const LiveSlice& slice) const;
  [[nodiscard]] Grant grant_of(const LiveSlice& slice) const;
  [[nodiscard]] std::string new_id(bool keep);
  [[nodiscard]] AgentView view_of_last_round() const;  // processes without their names
  // prepare.cc; under commit_
  Result<std::string> device_id_for(const PrepareRequest& request);
  Result<Prepared> prepare_new(LiveSlice slice);
  Result<Prepared> prepare_again(const LiveSlice& there, const LiveSlice& wanted);
  [[nodiscard]] const LiveSlice* part_of(const Owner& owner, const std::string& part) const;  // under state_
  // other slices of its owner; under state_
  [[nodiscard]] std::vector<Slice> slices_beside(const LiveSlice& slice) const;
  Result<void> remember_pods(const std::string& id, const std::vector<std::string>& pods);
  Result<std::string> next_device_id();
  Result<void> set_names_aside();
  std::optional<std::string> take_name();  // no lock needed
  static std::string unwritten_name();
  // card_files.cc
  void close_card_files(), give_card_files(), withdraw_card_files();
  // ending.cc; under commit_
  Result<std::vector<PodProcess>> pod_processes() const;
  Result<std::set<std::int32_t>> holders_of(const std::set<std::string>& ids,
                                            const Result<std::vector<PodProcess>>& pods, bool part_only);
  Result<void> note_ending(const Owner& owner, std::set<std::string>* ids);
  Result<void> end_owner(const Owner& owner, const Result<std::vector<PodProcess>>& pods);
  void end_ended();
  void kill_left_behind(const Owner& owner, const std::vector<PodProcess>& pods);
  // restore.cc
  void publish_devices();
  Result<void> adopt_inventory(), restore_records();
  void make_links(const std::string& driver_version);
  [[nodiscard]] std::string library_error() const;  // under state_
  void reconcile_pages(const std::vector<PageSlice>& present);
  // health.cc
  bool apply_verdicts();  // true: a card is healthy again
  void recall_cards(), remember_cards();
  [[nodiscard]] GpuInventory with_missing(GpuInventory fresh);
  // watch.cc
  [[nodiscard]] std::vector<std::string> slices_of_process(std::int32_t pid, bool by_hellos = true) const;
  void look_for_lost(), retry_links();
  [[nodiscard]] std::string slice_on(const std::vector<std::string>& ids, const CardId& card) const;
  std::vector<Sighting> sightings_of(const std::vector<GpuUsage>& usage, bool by_hellos = true);
  bool look_at_pages();  // true: the arbiter answered
  [[nodiscard]] std::vector<Bytes> spare_of(const LiveSlice& slice) const;  // under state_
  // accuse.cc
  [[nodiscard]] std::vector<CardHolder> holders_of_card(const CardId& card, const std::vector<Sighting>& sightings);
  void look_for_unexplained(const std::vector<GpuUsage>& usage, const std::vector<WatchedSlice>& watched,
                            const std::vector<Sighting>& sightings);
  // act.cc
  void act(const Breach& breach), thaw(), thaw_containers();
  bool throttle(const Breach& breach);
  std::string end_processes(const Breach& breach), end_slice(const Breach& breach);
  std::string slow(const Breach& breach, ComputeStep step), revoke(const std::string& id);
  [[nodiscard]] bool is_still_of(const std::string& slice, std::int32_t pid) const;
  void note_event(const std::string& kind, const std::string& slice, const std::string& text);
  void note_gpu_state();

  AgentConfig config_;
  AgentWorld world_;

  std::mutex commit_;  // one change at a time, with its input and output; taken before state_
  mutable std::mutex state_;  // everything below; never held across input or output
  std::condition_variable freed_;
  Ledger ledger_;
  GpuInventory inventory_;
  std::map<std::string, LiveSlice> slices_;
  std::vector<GpuUsage> usage_;
  std::vector<Sighting> sightings_;
  std::vector<Owner> pending_drops_;  // ended, but the journal could not be written
  std::deque<EventView> events_;
  std::deque<ProgramError> program_errors_;  // not taken yet
  std::string journal_error_, arbiter_error_, card_files_error_;
  std::string links_error_, links_of_;  // of the last attempt, and the driver version it was for; retried at intervals
  Clock::Time links_tried_{};
  Code arbiter_code_ = Code::kUnavailable;
  std::map<std::pair<std::string, std::size_t>, Bytes> overheads_;  // of the last round; watch() only
  bool arbiter_ok_ = false, arbiter_asked_ = false;
  Clock::Time arbiter_since_{};  // the arbiter has answered since then
  GpuState gpu_state_seen_ = GpuState::kStarting;
  std::uint32_t waiting_ = 0;
  std::uint64_t next_number_ = 1;
  std::mutex names_;                // of the next two; never held across input or output
  // this and the next under commit_: claims whose pods have ended but still have processes
  std::uint64_t next_promise_ = 0;
  std::uint64_t promised_until_ = 0;
  Clock::Time end_again_{};  // both under commit_: claims of ended pods that still have processes
  std::map<Owner, Clock::Time> ending_since_;
  std::uint32_t run_number_ = 0;
  Watchdog watchdog_;
  UnexplainedMemory unexplained_;
  struct Frozen {
    Clock::Time until;
    std::set<std::string> groups;  // of containers; empty: the slice's own cgroup
  };
  std::map<std::string, Frozen> frozen_;  // by slice
  // under commit_: pages that this agent requested; it keeps duplicates of their descriptors
  std::set<std::string> put_;
  CardBooks books_;
  bool inventory_stale_ = true;  // used by the watch thread only
};

}  // namespace carve
