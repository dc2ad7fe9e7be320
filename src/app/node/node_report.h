#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/events/event_recorder.h"
#include "app/node/cardless_pods.h"
#include "app/node/claim_holders.h"
#include "app/node/conditions.h"
#include "app/node/gpu_publisher.h"
#include "app/node/node_status.h"
#include "app/node/node_totals.h"
#include "app/node/pod_claims.h"
#include "app/plugins/node_pods.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/dialects/dialect.h"
#include "port/container_runtime.h"

namespace carve::node {

/// Checks the node five times a second and writes what changed to the API server: GPU objects, labels, conditions,
/// totals, and the annotation that requeues pods. One thread writes. The two watches have threads of their own.
class NodeReport {
 public:
  struct World {
    NodeSlices& slices;
    KubeApi& api;
    plugins::NodePods& pods;
    events::EventRecorder& notices;
    ContainerRuntime& runtime;
    Clock& clock;
    Log& log;
    std::string cdi_dir;
    std::vector<std::string> totals;             // names to keep on the Node: totals.h
    codec::DialectSettings dialects = {};
    std::function<std::string()> not_published;  // why other objects are not published; empty text: they are
    std::vector<std::string> plugins = {};         // kubelet plugins that are open: "dra", "slots"
    // Update an annotation of the Node when slices become free, so that kube-scheduler requeues waiting pods. False
    // where control does it: a scheduling attempt before control's ledger has the room would fail, and the pod would
    // keep waiting.
    bool wakes = true;
    // Resource names of other registered device plugins, with the number of their devices; unset: none.
    std::function<std::map<std::string, std::size_t>()> other_plugins;
    // Whether the kubelet's calls are answered. Only then is a previous agent's leaving condition cleared. Unset: yes.
    std::function<bool()> serves = {};
    SharePolicies shares = {};  // of a Node that states none itself
    std::uint64_t crashes = 0;  // agents that crashed before this one (src/app/keeper): reported on the Node
    ClaimHolders* claims = nullptr;  // set to the claims that hold cards; nullptr: nothing reads them
  };
  NodeReport(std::string node, World world);

  /// Asks the container runtime about CDI. Call it once before anything is offered. Takes a few seconds at most.
  void ask_runtime();
  /// Why nothing may start on this node; empty: it may. Any thread.
  [[nodiscard]] std::string shut() const;
  /// The modes of the cards that the Node states; empty until the Node is known. Any thread.
  [[nodiscard]] std::map<CardId, CardMode> modes() const;
  void run_gpu_watch(const std::stop_token& stop) { gpus_.run_watch(stop); }
  void run_node_watch(const std::stop_token& stop) { status_.run_watch(stop); }
  /// Announces the end of this agent: the next step() writes it to the Node (codec::kAgentLeaving). Any thread.
  void leave() { leaving_ = true; }
  /// Whether the API server has accepted that condition. Any thread.
  [[nodiscard]] bool said_leaving() const { return told_ == Presence::kLeaving; }
  /// Calls step() five times a second until `stop`.
  void run(const std::stop_token& stop);
  /// One check.
  void step();

 private:
  enum class Presence : std::uint8_t { kComing, kServing, kLeaving };
  void write_presence(Clock::Time now);
  void report_crashes();
  void check_api_server(Clock::Time now);
  void follow_card_modes(std::vector<Card>* cards, const std::vector<HeldSlice>& held, Clock::Time now);
  void follow_share_policies(const std::vector<Card>& cards, Clock::Time now);
  [[nodiscard]] NodeFacts facts_of(const GpuInventory& cards,
                                   const std::vector<codec::NodePod>& pods);
  void count_unresolved(const std::vector<codec::NodePod>& pods, NodeFacts* facts);
  void note(const char* what, std::string* last, std::string error);
  Result<bool> publish(const GpuInventory& cards, const std::vector<HeldSlice>& holdings,
                       const std::vector<codec::NodePod>& pods, Clock::Time now);

  std::string node_;
  World world_;
  GpuPublisher gpus_;
  NodeStatus status_;
  PodClaims claims_;
  NodeTotals totals_;
  CardlessPods cardless_;
  std::atomic<bool> leaving_ = false;
  std::atomic<Presence> told_ = Presence::kComing;  // the state of this agent that the Node shows
  mutable Mutex mutex_;
  RuntimeVerdict runtime_ GUARDED_BY(mutex_);
  std::map<CardId, std::pair<CardMode, Clock::Time>> modes_ GUARDED_BY(mutex_);  // that the Node states, since when
  // Only for the thread of step().
  Clock::Time next_runtime_{};
  Clock::Time next_presence_{};
  Clock::Time next_full_{};
  Clock::Time not_before_{};  // after an error of the API server
  Clock::Duration back_off_{};
  std::vector<HeldSlice> held_;
  std::vector<Card> cards_;
  std::uint64_t pods_seen_ = 0;
  bool open_ = true;
  std::optional<SharePolicies> shares_;  // as last set
  Clock::Time shares_awaited_{};         // until then the Node may still become known
  Clock::Time next_server_{};
  std::optional<Clock::Time> away_since_;  // the API server
  std::vector<ProgramError> program_errors_;  // not reported yet
  std::string gpu_error_;
  std::string presence_error_;
  std::string touch_error_;
  std::string status_error_;
  std::set<std::string> unresolved_;  // "pod UID/container" that were counted; bounded
  std::size_t unresolved_seen_ = 0;
};

}  // namespace carve::node
