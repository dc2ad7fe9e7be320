#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/arbiter_pages.h"
#include "app/agent/card_file_guard.h"
#include "app/agent/event_log.h"
#include "app/agent/history.h"
#include "app/agent/library_links.h"
#include "app/agent/local_slices.h"
#include "app/agent/node_cards.h"
#include "app/agent/node_views.h"
#include "app/agent/owner_turns.h"
#include "app/agent/prepared_slices.h"
#include "app/agent/process_slices.h"
#include "app/agent/second_line.h"
#include "app/agent/slice_lifecycle.h"
#include "app/agent/slice_names.h"
#include "app/agent/slice_store.h"
#include "base/clock.h"
#include "port/agent_api.h"
#include "port/node_slices.h"

namespace carve::agent {

/// The agent's ports, on top of its parts (README.md): each call goes to one part. The order of every change is in
/// SliceLifecycle, the locks are in the parts. Safe from any thread.
class Agent final : public AgentApi, public NodeSlices {
 public:
  Agent(AgentConfig config, AgentWorld world) : config_(std::move(config)), world_(std::move(world)) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Called once, before serving: reads the cards, then compares the journal's slices with cgroups and arbiter. An
  /// absent driver or arbiter is not an error; watch() catches up later.
  ///   errors  kDataLoss: the journal's slices contradict each other
  Result<void> restore();
  Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                         const std::function<bool()>& gone) override {
    return local_.allocate(caller, request, gone);
  }
  Result<void> join(const Caller& caller, const std::string& slice) override { return local_.join(caller, slice); }
  Result<void> release(const Caller& caller, const std::string& slice, bool kill) override {
    return local_.release(caller, slice, kill);
  }
  Result<AgentView> view(const Caller& caller) override { return views_.view(caller); }
  Result<HistoryAnswer> history(const Caller& caller, const HistoryQuery& query) override;
  Result<std::string> promise_device() override { return prepared_.promise_device(); }
  Result<Prepared> prepare(const PrepareRequest& request) override { return prepared_.prepare(request); }
  Result<void> unprepare(const Owner& owner) override { return prepared_.unprepare(owner); }
  void divide_by(const SharePolicies& policies) override { lifecycle_.divide_by(policies); }
  [[nodiscard]] std::vector<Slice> held() const override { return views_.held(); }
  [[nodiscard]] std::vector<HeldSlice> holdings() const override { return views_.holdings(); }
  [[nodiscard]] NodeTroubles troubles() const override { return views_.troubles(); }
  [[nodiscard]] std::vector<ProgramError> take_program_errors() override { return cards_.take_program_errors(); }
  [[nodiscard]] GpuInventory cards() const override { return cards_.offered(); }

  /// Ends slices with an empty cgroup. Cheap; called at every change of a cgroup and a few times a second.
  void reap();
  /// One round of the second line. Also completes what failed while driver or arbiter was away. Takes as long as the
  /// driver's library does.
  void watch();
  /// Takes the driver's reports and its state, and updates the verdicts on all cards. Never waits for the driver.
  void judge_cards(const std::vector<GpuEvent>& events) { cards_.judge(events); }
  /// The loops, each for one thread: the reaper, the watch, the health thread and the history. They run until `stop`.
  void run_reaper(const std::stop_token& stop);
  void run_watch(Clock& clock, const std::stop_token& stop);
  void run_health(const std::stop_token& stop);
  void run_history(Clock& clock, const std::stop_token& stop);
  /// The callers that wait for a change of this owner to end. For tests and diagnosis.
  [[nodiscard]] std::uint64_t waiting_for(const Owner& owner) const { return turns_.waiting(owner); }

 private:
  Result<void> restore_records();
  static std::optional<History> history_in(const AgentWorld& world, const NodeViews& views);

  const AgentConfig config_;
  const AgentWorld world_;
  // In the order in which they use each other.
  EventLog events_{world_.clock, world_.log};
  OwnerTurns turns_;
  SliceStore store_{world_.journal};
  SliceNames names_{store_.journal()};
  LibraryLinks links_{config_, world_};
  CardFileGuard card_files_{world_.card_files, events_};
  ArbiterPages pages_{world_.pages, world_.clock, events_};
  NodeCards cards_{config_, world_, store_, links_, events_};
  SliceLifecycle lifecycle_{config_, world_, store_, turns_, pages_, cards_};
  ProcessSlices processes_{world_, store_, pages_};
  LocalSlices local_{config_, world_, store_, turns_, lifecycle_, names_, cards_, links_};
  PreparedSlices prepared_{config_, world_, store_, turns_, lifecycle_, names_, links_, processes_};
  SecondLine second_line_{config_, world_, store_, lifecycle_, local_, pages_, cards_, processes_, events_};
  NodeViews views_{config_, world_,
                   {store_, cards_, pages_, lifecycle_, second_line_, local_, links_, card_files_, events_}};
  std::optional<History> history_ = history_in(world_, views_);
};

}  // namespace carve::agent
