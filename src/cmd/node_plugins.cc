#include "cmd/node_plugins.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "adapter/kubelet/kept_slots.h"
#include "adapter/kubelet/kubelet_server.h"
#include "adapter/kubelet/pod_resources.h"
#include "adapter/kubelet/runtime_asked.h"
#include "adapter/kubelet/workers.h"
#include "app/plugins/claimed_cards.h"
#include "app/plugins/claims_left.h"
#include "app/plugins/device_names.h"
#include "app/plugins/dra_driver.h"
#include "app/plugins/slice_publisher.h"
#include "app/plugins/slot_cards.h"
#include "app/plugins/device_plugin.h"
#include "app/node/departure.h"
#include "app/node/node_report.h"
#include "cmd/left_claims.h"

namespace carve::cmd {
namespace {

kubelet::DraSocketOptions dra_sockets(const PluginOptions& options) {
  const std::string driver(plugins::kDriver);
  return {driver, options.kubelet_dir + "/plugins/" + driver, options.kubelet_dir + "/plugins_registry",
          options.unique.empty() ? "agent" : options.unique};
}

kubelet::KubeletServer::Plugins sockets_of(const PluginOptions& options, plugins::DraDriver* dra,
                                         plugins::DevicePlugin* slots) {
  kubelet::KubeletServer::Plugins plugins;
  if (options.dra) {
    plugins.dra = dra;
    plugins.dra_sockets = dra_sockets(options);
  }
  if (options.slots && options.kept_by < 0) {
    plugins.slots = slots;
    plugins.slot_socket = slot_socket(options);
  }
  return plugins;
}

}  // namespace

kubelet::SlotSocketOptions slot_socket(const PluginOptions& options) {
  return {plugins::kSlotResource, options.device_plugins, "carve-slots.sock"};
}

Result<void> parse_plugins(const std::string& words, PluginOptions* options) {
  options->shares_cards = words == "dra,slots,shared";
  const bool both = words == "dra,slots" || words == "slots,dra" || options->shares_cards;
  options->dra = both || words == "dra";
  options->slots = both || words == "slots";
  if (options->dra || options->slots) return {};
  return fail(Code::kInvalidArgument,
              "--plugins: \"" + words.substr(0, 64) + "\"; legal are dra, slots, dra,slots and dra,slots,shared");
}

namespace {

std::vector<std::string> open_plugins(const PluginOptions& options) {
  std::vector<std::string> open;
  if (options.dra) open.emplace_back("dra");
  if (options.slots) open.emplace_back("slots");
  return open;
}

/// Sends a change of health to the kubelet within 500 ms. Otherwise the server repeats the health every ten seconds.
void send_health_changes(const plugins::DraDriver& dra, kubelet::KubeletServer& serving, Clock& clock,
                         const std::stop_token& stop) {
  auto told = dra.health();
  while (clock.sleep_for(std::chrono::milliseconds(500), stop)) {
    auto now = dra.health();
    if (now == told) continue;
    told = std::move(now);
    serving.changed();
  }
}

void serve_dra(plugins::SlicePublisher& publisher, const plugins::DraDriver& dra, kubelet::KubeletServer& server,
               Clock& clock, std::vector<Thread>* threads) {
  threads->emplace_back("watch-slices", [&](const std::stop_token& end) { publisher.run_watch(end); });
  threads->emplace_back("publish-slices", [&](const std::stop_token& end) { publisher.run_writer(clock, end); });
  threads->emplace_back("send-health",
                        [&](const std::stop_token& end) { send_health_changes(dra, server, clock, end); });
}

/// Whether the kubelet knows of free healthy slots (at the start only slots in use are healthy), or there are none for
/// a reason that the Node's conditions state.
bool offers_slots(const plugins::DevicePlugin& plugin, const NodeSlices& slices, const std::string& shut) {
  if (plugin.offers()) return true;
  const auto gpu = slices.troubles().gpu;
  if (gpu == GpuState::kStarting) return false;  // the cards come from the file, and none is healthy yet
  const auto cards = slices.cards().cards;
  return gpu != GpuState::kOk || !shut.empty() ||
         std::none_of(cards.begin(), cards.end(), [](const Card& card) { return card.health.ok; });
}

/// After a stop signal: the agent serves until the pods that were bound here have started, and asks that no more pods
/// are bound. With DRA alone it does not wait: the next agent has registered already, and the kubelet retries a call
/// that fails.
void finish_starts(const PluginOptions& options, const plugins::DevicePlugin& slots, node::NodeReport& report,
                   Clock& clock, Log& log) {
  if (!options.slots || options.leaves_within == Clock::Duration::zero()) return;
  if (!options.wakes_pods) report.leave();  // only control reads the condition
  const auto begun = clock.now();
  const node::Departure departure{[&] { return report.said_leaving(); }, [&] { return slots.unfinished(); },
                                  !options.wakes_pods, options.leaves_within};
  const auto left = departure.wait(clock);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - begun).count();
  log.info("this agent ends", {{"said", report.said_leaving()}, {"ms", ms}});
  for (const auto& one : left) log.warn("this agent ends before a pod has started", {{"what", one}});
}

bool holds_pods(const NodeSlices& slices) {
  const auto held = slices.held();
  return std::any_of(held.begin(), held.end(), [](const Slice& one) { return one.owner.kind == OwnerKind::kPod; });
}

/// Where the kubelet's calls arrive: the agent's own sockets and, for the device plugin, the socket to the keeper if
/// there is one. Filled before any thread starts.
struct KubeletEndpoints {
  std::unique_ptr<kubelet::KubeletServer> server;  // nullptr: there is only the socket to the keeper
  std::unique_ptr<kubelet::KeptSlots> kept;

  Result<void> open(const PluginOptions& options, plugins::DraDriver* dra, plugins::DevicePlugin* slots,
                    std::function<bool()> settled, Log& log) {
    const bool by_keeper = options.slots && options.kept_by >= 0;
    if (by_keeper) {
      CARVE_TRY(kept, kubelet::KeptSlots::open(options.kept_by, {*slots, std::move(settled), log}));
    }
    if (options.dra || !by_keeper) {
      CARVE_TRY(server, kubelet::KubeletServer::open(sockets_of(options, dra, slots), log));
    }
    return {};
  }
  void slots_changed() const {
    if (kept) kept->changed();
    if (server && !kept) server->changed();
  }
  [[nodiscard]] bool dra_registered() const { return server && server->seen().dra_registered; }
  [[nodiscard]] bool slots_listened_to() const {
    return kept ? kept->listening() : server && server->seen().slots_registered;
  }
};

}  // namespace

Result<void> run_plugins(const PluginOptions& options, NodeSlices& slices, KubeApi& api, Clock& clock, Log& log,
                       const std::stop_token& stop, plugins::WaitingDra* early) {
  KubeletEndpoints* in = nullptr;  // set before any thread starts
  const auto registered = [&in] { return in != nullptr && in->dra_registered(); };
  events::EventRecorder notices(api, options.node, clock, log);
  plugins::NodePods pods(options.node, api);
  kubelet::RuntimeAsked runtime(options.runtime_sockets);
  kubelet::KubeletAsked kubelet(options.kubelet_dir, options.device_plugins);
  const auto other_plugins = [&kubelet] {
    return kubelet.registered().value_or(std::map<std::string, std::size_t>());
  };
  plugins::SlicePublisher* cards = nullptr;
  std::function<bool()> serves;  // set at the same time as `in`
  node::NodeReport report(
      options.node,
      {slices, api, pods, notices, runtime, clock, log, options.cdi_dir, options.totals, options.dialects,
       [&] { return cards != nullptr && registered() ? cards->error() : std::string(); }, open_plugins(options),
       options.wakes_pods, other_plugins, [&serves] { return serves && serves(); }, options.shares, options.crashes,
       options.claims});
  const auto shut = [&report] { return report.shut(); };
  plugins::FullCards full;
  plugins::DraDriver dra(options.node,
                     {slices, api, notices, clock, log,
                      [&] { return options.dra ? report.shut() : std::string(plugins::kNoNewClaims); }, &full});
  plugins::ClaimsLeft claims_left(options.node, slices, pods, api);
  plugins::SlotCards slot_cards;
  plugins::ClaimedCards claimed(options.node, api);
  const bool apart = options.dra && options.slots && !options.shares_cards;  // a card is for claims or for slots
  constexpr Clock::Duration kPodsWithin = std::chrono::seconds(30);  // then cards are offered without the pods' use
  const auto begun = clock.now();
  const auto limits = [&] {
    const auto held = slices.held();
    plugins::OfferLimits use;
    use.full = full.cards(held, slices.cards(), clock.now());
    use.modes = report.modes();
    if (options.shares_cards) return use;
    use.known = pods.synced() && (!apart || claimed.synced());
    use.awaited = options.slots && !use.known && clock.now() - begun < kPodsWithin;
    auto in_use = plugins::cards_of_slots(held, pods.all());
    in_use.merge(claimed.cards());
    use.cards = slot_cards.step(in_use, clock.now());
    return use;
  };
  plugins::SlicePublisher publisher(options.node, slices, api, log, registered, shut, limits);
  if (options.dra) cards = &publisher;
  const auto list_changed = [&in] {
    if (in != nullptr) in->slots_changed();
  };
  report.ask_runtime();
  kubelet::Workers slot_jobs(ThreadName("slot-prepare"), 4);
  plugins::DevicePlugin device_plugin({slices, kubelet, pods, notices, clock, log, list_changed, shut,
                                       options.dialects,
                                       [&](std::function<void()> job) { return slot_jobs.post(std::move(job)); }});
  // Pods that got slots while plugins contained slots: their slices end here, too.
  const bool ends_slots = options.slots || holds_pods(slices);
  if (ends_slots) device_plugin.restore();
  const auto settled = [&] { return offers_slots(device_plugin, slices, report.shut()); };
  KubeletEndpoints endpoints;
  CARVE_TRY_VOID(endpoints.open(options, &dra, &device_plugin, settled, log));
  in = &endpoints;
  serves = [&] { return !options.slots || (endpoints.slots_listened_to() && settled()); };

  bool again = false;  // this agent ends only to be started again
  // These threads stop last: the server's destructor waits for calls that the DRA driver and the device plugin answer,
  // and the keeper is notified only after both have stopped.
  std::optional<Thread> line;
  if (endpoints.kept) line.emplace("keeper-line", [&](const std::stop_token& end) { endpoints.kept->run(end); });
  std::optional<Thread> sockets;
  if (endpoints.server) sockets.emplace("sockets", [&](const std::stop_token& end) { endpoints.server->run(end); });
  {
    const Thread telling("events", [&](const std::stop_token& end) { notices.run(end); });
    std::vector<Thread> threads;
    threads.emplace_back("watch-node", [&](const std::stop_token& end) { report.run_node_watch(end); });
    threads.emplace_back("watch-gpus", [&](const std::stop_token& end) { report.run_gpu_watch(end); });
    threads.emplace_back("node-report", [&](const std::stop_token& end) { report.run(end); });
    const auto pods_changed = [&] {
      device_plugin.poke();
      if (options.slots && !options.shares_cards) publisher.poke();
    };
    threads.emplace_back("node-pods", [&](const std::stop_token& end) { pods.run(pods_changed, end); });
    if (apart) threads.emplace_back("watch-egpus", [&](const std::stop_token& end) { claimed.run(end); });
    if (options.dra) {
      serve_dra(publisher, dra, *endpoints.server, clock, &threads);
    } else {
      threads.emplace_back("left-claims", [&](const std::stop_token& end) {
        serve_left_claims(claims_left, dra, dra_sockets(options), clock, log, end);
      });
    }
    if (ends_slots) threads.emplace_back("slots", [&](const std::stop_token& end) { device_plugin.run(end); });
    if (early != nullptr && options.dra) early->lead_to(dra);
    while (clock.sleep_for(std::chrono::hours(1), stop)) {
    }
    again = options.starts_again && options.starts_again();
    if (again && endpoints.kept) endpoints.kept->mute();
    if (!again) finish_starts(options, device_plugin, report, clock, log);
    if (early != nullptr) early->give_up();
    sockets.reset();  // no new calls; waiting calls are answered when `threads` stop, just below
  }
  if (endpoints.kept && !again) endpoints.kept->leave();
  return {};
}

}  // namespace carve::cmd
