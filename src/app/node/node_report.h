#pragma once

#include <atomic>
#include <cstdint>
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
#include "app/node/conditions.h"
#include "app/node/gpu_publisher.h"
#include "app/node/node_status.h"
#include "app/node/node_totals.h"
#include "app/node/pod_claims.h"
#include "base/log.h"
#include "port/container_runtime.h"

namespace carve::node {

/// Looks at the node five times a second and tells the cluster what changed: GPU objects, labels,
/// conditions, totals, the touch. One thread writes; the two watches have threads of their own.
class NodeReport {
 public:
  struct World {
    NodeSlices& slices;
    KubeApi& api;
    doors::NodePods& pods;
    doors::EventRecorder& notices;
    ContainerRuntime& runtime;
    Clock& clock;
    Log& log;
    std::string cdi_dir;
    std::vector<std::string> totals;             // names to keep on the Node: totals.h
    Bytes gpushare_unit = Bytes::gib(1);         // of aliyun.com/gpu-mem
    std::function<std::string()> not_published;  // by others; empty text: all is
    std::vector<std::string> doors = {};         // that are open here: "dra", "slots"
    // Waiting pods are woken by a touch of the Node when slices are free. Not where a control does it: a scheduler that
    // tries before control's ledger knows finds no room, and sleeps on.
    bool wakes = true;
    // Resource names for which somebody's device plugin has registered, with its devices; unset: none.
    std::function<std::map<std::string, std::size_t>()> plugins;
    // What the kubelet asks is answered: only then is an earlier agent's farewell taken back. Unset: at once.
    std::function<bool()> serves = {};
    std::uint64_t crashes = 0;  // of agents that this one follows (src/app/keeper): told on the Node
  };
  NodeReport(std::string node, World world);

  /// Asks the runtime, once, before anything is offered. At most some seconds.
  void ask_runtime();
  /// Why nothing may start here; empty: it may. Any thread.
  [[nodiscard]] std::string shut() const;
  void run_gpu_watch(const std::stop_token& stop) { gpus_.run_watch(stop); }
  void run_node_watch(const std::stop_token& stop) { status_.run_watch(stop); }
  /// This agent is about to end: from the next look on the Node says so (codec::kAgentLeaving). Any thread.
  void leave() { leaving_ = true; }
  /// The API server has taken that word. Any thread.
  [[nodiscard]] bool said_leaving() const { return told_ == Presence::kLeaving; }
  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// One look.
  void step();

 private:
  enum class Presence : std::uint8_t { kComing, kServing, kLeaving };
  void tell_presence(Clock::Time now);
  void tell_crash();
  void look_for_server(Clock::Time now);
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
  std::atomic<bool> leaving_ = false;
  std::atomic<Presence> told_ = Presence::kComing;  // what the Node says of this agent
  mutable std::mutex mutex_;
  RuntimeVerdict runtime_;
  // The stepping thread's own.
  Clock::Time next_runtime_{};
  Clock::Time next_telling_{};
  Clock::Time next_full_{};
  Clock::Time not_before_{};  // after an error of the API server
  Clock::Duration back_off_{};
  std::vector<HeldSlice> held_;
  std::vector<Card> cards_;
  std::uint64_t pods_seen_ = 0;
  bool open_ = true;
  Clock::Time next_server_{};
  std::optional<Clock::Time> away_since_;  // the API server
  std::vector<ProgramError> program_errors_;  // not told yet
  std::string gpu_error_;
  std::string status_error_;
  std::set<std::string> unresolved_;  // "pod UID/container" that were seen; bounded
  std::size_t unresolved_seen_ = 0;
};

}  // namespace carve::node
