#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>

#include "adapter/kube/kube_client.h"
#include "adapter/kubelet/runtime_asked.h"
#include "adapter/process/child_agent.h"
#include "app/node/totals.h"
#include "base/thread.h"
#include "cmd/agent_main.h"
#include "cmd/agent_port.h"
#include "cmd/cluster_config.h"
#include "cmd/config.h"
#include "cmd/config_watch.h"
#include "cmd/keep_agent.h"
#include "cmd/node_plugins.h"
#include "cmd/options.h"
#include "cmd/start_again.h"
#include "cmd/take_over.h"
#include "port/kept_agent.h"

// carve agent on a Kubernetes node: its settings, the kubelet plugins, the metrics port, and the take-over from the
// previous agent of the node.
namespace carve::cmd {
namespace {

constexpr std::chrono::seconds kHandover{10};  // by then the kubelet uses this agent's own sockets
constexpr int kMostRounds = 6000;  // of 10 ms, 60 s in all: an agent has 30 s to end

/// Kubelet plugins and totals: from the flags, else from the cluster configuration if it exists, else DRA alone.
Result<void> apply_cluster(const NodeOptions& node, PluginOptions* plugins, Log& log) {
  std::string words = node.plugins.empty() ? "dra" : node.plugins;
  CARVE_TRY(plugins->totals, node::total_names(node.totals));
  if (!node.cluster_config.empty()) {
    const auto cluster = read_cluster_config(node.cluster_config);
    if (!cluster && cluster.error().code != Code::kNotFound) return tl::unexpected(cluster.error());
    if (cluster) {
      if (node.plugins.empty()) words = cluster->plugins;
      if (node.totals.empty() && words != "dra") plugins->totals = cluster->totals();
      plugins->dialects = cluster->dialects();
      plugins->shares = cluster->share_policies();
      plugins->wakes_pods = false;
    }
    log.info(cluster ? "control is installed" : "control is not installed",
             {{"configuration", node.cluster_config}, {"plugins", words}});
  }
  return parse_plugins(words, plugins);
}

/// Whether an agent can start with this cluster configuration. Without one, control is not installed and the agent
/// serves DRA.
Result<void> can_start_with(const std::optional<std::string>& text) {
  if (!text) return {};
  const auto config = parse_cluster_config(*text, "cluster.conf");
  return config ? Result<void>() : tl::unexpected(config.error());
}

/// The same for the agent's own configuration file. Checks its text only.
Result<void> can_start_configured(const std::string& path, bool named, const std::optional<std::string>& text) {
  if (!text) return named ? Result<void>(fail(Code::kNotFound, path + " is gone")) : Result<void>();
  HostOptions read;
  CARVE_TRY_VOID(parse_config(*text, path, {}, &read));
  CARVE_TRY_VOID(check_folders(read));
  const auto xids = xid_policy_of(read);
  return xids ? Result<void>() : tl::unexpected(xids.error());
}

/// Watches the configuration of a node's agent, which is mounted.
ConfigWatch watch_configuration(const HostOptions& options, Clock& clock, Log& log) {
  const bool named = !options.config.empty();
  const std::string path = named ? options.config : kUsualConfig;
  const auto check = [path, named](const auto& text) { return can_start_configured(path, named, text); };
  return {path, options.config_text, check, clock, log};
}

/// Makes this process the keeper of an agent that serves the device plugin. The agent is its child, with the same
/// arguments. `stays`: whether the node still serves slots after a change of settings.
int keep_own_agent(const PluginOptions& options, const std::function<bool()>& stays, const sigset_t& stop,
                   const Clock& clock, Log& log) {
  const auto args = own_arguments();
  if (!args) return report(args.error());
  process::ChildAgent agent(own_path(), *args);
  const Fd told_to_stop(::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!told_to_stop) return report(errno_error(errno, "signalfd"));
  const auto code = keep_agent(options, agent, stays, told_to_stop.get(), clock, log);
  return code ? *code : report(code.error());
}

/// The options of the kubelet plugins to serve.
Result<PluginOptions> plugin_options(const HostOptions& host, const NodeOptions& node, Log& log) {
  PluginOptions options;
  options.node = node.name;
  options.kubelet_dir = node.kubelet_dir;
  options.unique = node.instance;
  options.cdi_dir = host.cdi_dir;
  options.kept_by = node.kept_by;
  options.crashes = node.crashes;
  for (const auto& socket : node.runtime_socket.empty() ? kubelet::usual_runtime_sockets()
                                                        : std::vector<std::string>{node.runtime_socket})
    options.runtime_sockets.push_back(host.host_root + socket);
  CARVE_TRY_VOID(apply_cluster(node, &options, log));
  return options;
}

/// The metrics port and the kubelet plugins, each on threads of their own.
class Serving final : public NodeServing {
 public:
  struct Parts {
    const NodeOptions& node;
    PluginOptions& plugins;
    node::ClaimHolders& claims;
    KubeApi& api;
    Clock& clock;
    Log& log;
    TakeOver* early;  // null: no other agent served this node before
  };
  Serving(agent::Agent& agent, const Parts& parts) : parts_(parts) {
    if (!parts_.node.listen.empty()) open_port(agent);
    kubelet_ = Thread("kubelet", [this, &agent](const std::stop_token& stop) { run(agent, stop); });
    if (parts_.early == nullptr) return;
    handover_ = Thread("handover", [this](const std::stop_token& stop) {
      parts_.clock.sleep_for(kHandover, stop);
      parts_.early->close();  // its driver stays: run_plugins() uses it
    });
  }
  [[nodiscard]] bool failed() const override { return failed_; }

 private:
  void open_port(agent::Agent& agent) {
    const std::string& listen = parts_.node.listen;
    auto opened = open_agent_port(listen, agent, parts_.claims, parts_.node.name, parts_.node.crashes, parts_.log);
    if (!opened) parts_.log.warn("metrics are not served", {{"listen", listen}, {"error", opened.error().what}});
    if (opened) port_ = std::move(*opened);
  }
  void run(agent::Agent& agent, const std::stop_token& stop) {
    plugins::WaitingDra* waiting = parts_.early != nullptr ? &parts_.early->driver() : nullptr;
    auto served = run_plugins(parts_.plugins, agent, parts_.api, parts_.clock, parts_.log, stop, waiting);
    if (served) return;
    parts_.log.error("the kubelet plugins cannot be opened", {{"error", served.error().what}});
    failed_ = true;
    ::kill(::getpid(), SIGTERM);  // the DaemonSet restarts it, and shows the failure
  }

  const Parts parts_;
  std::atomic<bool> failed_ = false;
  std::unique_ptr<http::Server> port_;
  Thread kubelet_;
  Thread handover_;
};

class KubernetesNode final : public NodePart {
 public:
  /// The configuration is watched from now on, so construct it before the configuration is read.
  KubernetesNode(const HostOptions& host, const NodeOptions& node, Clock& clock, Log& log)
      : node_(node), clock_(clock), log_(log), agreed_(node.cluster_config, can_start_with, clock, log),
        configured_(watch_configuration(host, clock, log)),
        watching_cluster_config_(Thread("cluster-config", [this](const auto& stop) { agreed_.run({}, stop); })),
        watching_config_(Thread("agent-config", [this](const auto& stop) { configured_.run({}, stop); })) {}

  ///   errors  kInvalidArgument: the flags, or the kubeconfig; kNotFound: no kubeconfig and no pod's service account
  Result<void> open(const HostOptions& host) {
    CARVE_TRY(plugins_, plugin_options(host, node_, log_));
    plugins_.claims = &claims_;
    plugins_.starts_again = [this] { return settings_changed(); };
    CARVE_TRY(api_, kube::open(node_.kubeconfig, clock_, log_));
    return {};
  }

  // On a Kubernetes node a new agent starts while the previous one still runs. It registers with the kubelet (`early_`)
  // and waits until the previous agent has ended.
  Result<void> journal_is_taken(int round, const Error& why) override {
    if (round == 0) {
      log_.info("another agent serves this node; taking over when it ends", {{"journal", why.what}});
      CARVE_TRY(early_, TakeOver::open(plugins_, log_));
    } else if (round == kMostRounds && early_) {
      // The other agent does not end: two agents were started for one node. The kubelet returns to the one that serves.
      log_.warn("the other agent does not end; this one leaves the kubelet and waits", {{"journal", why.what}});
      early_.reset();
    }
    return {};
  }
  std::unique_ptr<NodeServing> serve(agent::Agent& agent) override {
    return std::make_unique<Serving>(
        agent, Serving::Parts{node_, plugins_, claims_, *api_, clock_, log_, early_.get()});
  }
  [[nodiscard]] bool settings_changed() const override { return agreed_.changed() || configured_.changed(); }

 private:
  const NodeOptions& node_;
  Clock& clock_;
  Log& log_;
  ConfigWatch agreed_;
  ConfigWatch configured_;
  PluginOptions plugins_;
  node::ClaimHolders claims_;
  std::unique_ptr<KubeApi> api_;
  std::unique_ptr<TakeOver> early_;
  Thread watching_cluster_config_;
  Thread watching_config_;
};

/// Runs the node's agent once, or its keeper.
int run_once(const HostOptions& host, const NodeOptions& node, Clock& clock, Log& log, const sigset_t& stop_signals) {
  if (node.kept_by < 0) {
    PluginOptions wanted;
    if (auto applied = apply_cluster(node, &wanted, log); !applied) return report(applied.error());
    const auto stays = [&node, &log] {
      PluginOptions now;
      return apply_cluster(node, &now, log) && now.slots;
    };
    if (wanted.slots) return keep_own_agent(wanted, stays, stop_signals, clock, log);
  }
  KubernetesNode part(host, node, clock, log);
  if (auto opened = part.open(host); !opened) return report(opened.error());
  return serve_agent(host, &part, clock, log, stop_signals);
}

}  // namespace

int run_node_agent(const HostOptions& options, const NodeOptions& node, Clock& clock, Log& log,
                   const sigset_t& stop_signals) {
  const int code = run_once(options, node, clock, log, stop_signals);
  // The keeper starts its child again.
  return code == kSettingsChanged && node.kept_by < 0 ? start_again() : code;
}

}  // namespace carve::cmd
