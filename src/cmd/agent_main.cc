#include <grp.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>

#include "abi/page.h"
#include "adapter/api/server.h"
#include "adapter/cdi/card_files.h"
#include "adapter/cdi/cdi_files.h"
#include "adapter/cgroup/cgroup2.h"
#include "adapter/cgroup/pod_groups.h"
#include "adapter/files/history_folder.h"
#include "adapter/files/journal_file.h"
#include "adapter/files/known_cards_file.h"
#include "adapter/mountns/enclosure.h"
#include "adapter/mountns/library_store.h"
#include "adapter/mountns/library_users.h"
#include "adapter/nvml/client.h"
#include "adapter/process/child_agent.h"
#include "adapter/process/file_limit.h"
#include "adapter/process/proc_fs.h"
#include "adapter/process/text_file.h"
#include "app/agent/agent.h"
#include "app/node/totals.h"
#include "codec/health/xid_policy_text.h"
#include "adapter/kube/kube_client.h"
#include "adapter/kubelet/runtime_asked.h"
#include "base/thread.h"
#include "base/unix_address.h"
#include "cmd/agent_port.h"
#include "cmd/arbiter_main.h"
#include "cmd/cluster_config.h"
#include "cmd/config.h"
#include "cmd/config_watch.h"
#include "cmd/keep_agent.h"
#include "cmd/node_plugins.h"
#include "cmd/options.h"
#include "cmd/start_again.h"
#include "cmd/stop_signals.h"
#include "cmd/take_over.h"
#include "port/kept_agent.h"

// carve agent: wires the parts of the agent and runs them until SIGTERM.
namespace carve::cmd {
namespace {

using agent::AgentConfig;
using agent::AgentWorld;

class JournalOnDisk final : public NodeJournal {
 public:
  explicit JournalOnDisk(files::JournalFile file) : file_(std::move(file)) {}
  Result<void> append(const std::vector<JournalEvent>& events) override { return file_.append(events); }
  [[nodiscard]] const JournalState& state() const override { return file_.state(); }

 private:
  files::JournalFile file_;
};

/// A socket inode without a listener. A file that it is bind-mounted over cannot be opened by any process.
Result<void> make_mask(const std::string& path) {
  CARVE_TRY(const auto address, unix_address(path));
  ::unlink(path.c_str());
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return tl::unexpected(errno_error(errno, "make " + path));
  }
  return {};
}

/// The access rules without a row of the configuration: root, and group carve if it exists.
void default_access(HostOptions* options) {
  if (!options->access.empty()) return;
  if (const group* entry = ::getgrnam("carve")) {
    agent::AccessRule rule;
    rule.gid = entry->gr_gid;
    rule.text = "group:carve";
    options->access.push_back(rule);
  }
}

std::string library_source(const HostOptions& options) {
  if (!options.lib_source.empty()) return options.lib_source;
  for (const char* place : {"/../lib/carve", "/../preload", "/../lib", ""}) {
    const std::string folder = process::real_path(own_folder() + place);
    if (!folder.empty() && ::access((folder + "/libcarve-cuda.so").c_str(), R_OK) == 0) return folder;
  }
  return own_folder() + "/../lib/carve";
}

AgentConfig config_of(const HostOptions& options, bool gives_cards) {
  AgentConfig config;
  config.gives_cards = gives_cards;
  config.runtime_folder = options.runtime_dir;
  config.state_folder = options.state_dir;
  config.device_folder = options.cdi_dir;
  config.slices_folder = options.slices_dir();
  config.whole_folder = options.whole_dir();
  config.masking_socket = options.runtime_dir + "/mask";
  config.driver_mounts = options.driver_mounts;
  config.access = options.access;
  config.slices_for_root = options.slices_for_root;
  config.trusted_holders = options.trusted_holders;
  config.on_memory = options.on_memory;
  config.on_compute = options.on_compute;
  config.version = std::string(kVersion) + " " + kCommit;
  config.page_abi = abi::kPageAbi;
  const auto installed = mountns::LibraryStore::install(library_source(options), options.libraries());
  if (const auto boot = process::read_text("/proc/sys/kernel/random/boot_id"))
    config.boot_id = boot->substr(0, boot->find('\n'));
  if (installed) {
    config.library_folder = *installed;
  } else {
    config.library_error = installed.error().what;
  }
  return config;
}

/// What XIDs mean: the built-in table, overridden by the operator's file.
///   errors  kInvalidArgument: every line that is wrong; the errors of reading the file
Result<XidPolicy> xid_policy_of(const HostOptions& options) {
  if (options.health_policy.empty()) return built_in_xid_policy();
  const auto text = process::read_text(options.health_policy);
  if (!text) return fail_in("--health-policy", text.error());
  return codec::parse_xid_policy(options.health_policy, *text, built_in_xid_policy());
}

/// The cgroups of `carve run`'s slices. On a Kubernetes node the pods have cgroups of their own, so the folder is
/// opened only if it exists, because `carve up` ran there before. Null otherwise.
Result<std::unique_ptr<cgroup::Cgroup2>> open_cgroups(const HostOptions& options, bool node_agent) {
  CARVE_TRY(const std::string root, cgroup_folder(options));
  if (node_agent && ::access(root.c_str(), F_OK) != 0) return nullptr;
  return cgroup::Cgroup2::open(root);
}

nvml::WorkerOptions worker_options(const HostOptions& options) {
  nvml::WorkerOptions worker;
  worker.program = own_path();
  worker.args = {"nvml-worker"};
  if (!options.driver_root.empty())
    worker.args.insert(worker.args.end(), {"--driver-root", options.driver_root});
  if (!options.host_root.empty())
    worker.args.insert(worker.args.end(), {"--host-root", options.host_root});
  return worker;
}

/// `runs`: this agent serves `carve run`, which mounts over folders of this file system.
Result<void> make_folders_for(const HostOptions& options, bool runs) {
  CARVE_TRY_VOID(process::make_folders(options.runtime_dir, 0755));
  CARVE_TRY_VOID(process::make_folders(options.slices_dir(), 0700));
  // A container gets its slice's folder by a mount, which root creates. No other user may enter the parent folder, or
  // any user of the node could say hello in a slice's name. `carve run` mounts as its caller, so its caller must be
  // able to enter, by the name that the agent returned.
  if (::chmod(options.slices_dir().c_str(), runs ? 0711 : 0700) != 0) {
    return tl::unexpected(errno_error(errno, "chmod " + options.slices_dir()));
  }
  if (!runs) return {};
  CARVE_TRY_VOID(mountns::make_mount_points());
  return make_mask(options.runtime_dir + "/mask");
}

/// The texts of the CDI files that are published now.
std::vector<std::string> published(cdi::CdiFiles& devices) {
  std::vector<std::string> texts;
  const auto ids = devices.list();
  for (const auto& id : ids ? *ids : std::vector<std::string>()) {
    if (auto text = process::read_text(devices.path_of(id))) texts.push_back(std::move(*text));
  }
  return texts;
}

/// Removes builds of libcarve that an upgrade left behind. `specs`: the CDI files from before this agent published any.
/// A runtime that has just read one of them may still mount the build that it names. The next start removes that build.
void remove_old_libraries(const HostOptions& options, const std::string& current, const std::vector<std::string>& specs,
                          Log& log) {
  if (current.empty()) return;
  const auto unused = mountns::unused_builds(options.libraries(), current, specs);
  if (!unused) return log.warn("old libraries are not removed", {{"reason", unused.error().what}});
  for (const auto& folder : *unused) {
    const auto removed = mountns::remove_build(folder);
    log.info("old library removed", {{"folder", folder}, {"ok", removed.has_value()}});
  }
}

constexpr std::chrono::seconds kHandover{10};  // by then the kubelet uses this agent's own sockets
constexpr int kMostRounds = 6000;  // of 10 ms, 60 s in all: an agent has 30 s to end

/// The journal, which only one agent has at a time. On a Kubernetes node a new agent starts while the previous one
/// still runs. It registers with the kubelet (`early`) and waits here until the previous agent has ended. nullopt: a
/// stop signal arrived meanwhile.
Result<std::optional<files::JournalFile>> open_journal(const HostOptions& options, const PluginOptions* plugins,
                                                const sigset_t& stop, Log& log, std::unique_ptr<TakeOver>* early) {
  CARVE_TRY_VOID(process::make_folders(options.state_dir, 0755));
  const std::string folder = options.state_dir + "/journal.d";
  CARVE_TRY_VOID(process::make_folders(folder, 0700));
  for (int round = 0;; ++round) {
    auto file = files::JournalFile::open(folder);
    if (file) return std::optional<files::JournalFile>(std::move(*file));
    if (file.error().code != Code::kFailedPrecondition || plugins == nullptr) return fail_in("journal", file.error());
    if (round == 0) {
      log.info("another agent serves this node; taking over when it ends", {{"journal", file.error().what}});
      CARVE_TRY(*early, TakeOver::open(*plugins, log));
    } else if (round == kMostRounds && *early) {
      // The other agent does not end: two agents were started for one node. The kubelet returns to the one that serves.
      log.warn("the other agent does not end; this one leaves the kubelet and waits", {{"journal", file.error().what}});
      early->reset();
    }
    const timespec wait = {0, 10'000'000};
    if (::sigtimedwait(&stop, nullptr, &wait) > 0) return std::optional<files::JournalFile>();
  }
}

/// The kubelet plugins of this node, served on a thread of their own.
struct Plugins {
  PluginOptions options;
  std::unique_ptr<KubeApi> api;
};

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

/// Watches the configuration of a node's agent, which is mounted. An agent that a person started is not restarted.
ConfigWatch watch_configuration(const HostOptions& options, const NodeOptions& node, Clock& clock, Log& log) {
  const bool named = !options.config.empty();
  const std::string path = named ? options.config : kUsualConfig;
  const auto check = [path, named](const auto& text) { return can_start_configured(path, named, text); };
  return {node.name.empty() ? std::string() : path, options.config_text, check, clock, log};
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

/// The cards' device files, if they belong to the agent; else nullptr. With `own-devices = off` it restores the files
/// that an earlier agent has closed.
///   errors  kInvalidArgument: own-devices on a Kubernetes node; those of device_group() and restore_card_files()
Result<std::unique_ptr<cdi::OwnedCardFiles>> open_card_files(const HostOptions& options, const AgentConfig& config,
                                                             bool node_agent, Log& log) {
  if (node_agent && options.own_devices) {
    return fail(Code::kInvalidArgument,
                "own-devices: \"on\"; legal on a Kubernetes node: off; the runtime creates device nodes for each "
                "container there, and Carve does not manage users of the host");
  }
  if (node_agent) return nullptr;
  CARVE_TRY(const auto group, device_group(options));
  const cdi::CardFileOptions files{cdi::card_file_record(options.state_dir), config.boot_id, group};
  if (options.own_devices) return std::make_unique<cdi::OwnedCardFiles>(files);
  if (::access(files.record.c_str(), F_OK) != 0) return nullptr;
  CARVE_TRY(const auto left, cdi::restore_card_files(files));
  for (const auto& text : left) log.warn("device file is not restored", {{"reason", text}});
  return nullptr;
}

/// The kubelet plugins to serve; nullopt: not on a Kubernetes node.
///   errors  kInvalidArgument: the flags, or the kubeconfig; kNotFound: no kubeconfig and no pod's service account
Result<std::optional<Plugins>> plugins_of(const HostOptions& host, const NodeOptions& node, Clock& clock, Log& log) {
  if (node.name.empty()) return std::nullopt;
  Plugins plugins;
  plugins.options.node = node.name;
  plugins.options.kubelet_dir = node.kubelet_dir;
  plugins.options.unique = node.instance;
  plugins.options.cdi_dir = host.cdi_dir;
  plugins.options.kept_by = node.kept_by;
  plugins.options.crashes = node.crashes;
  for (const auto& socket : node.runtime_socket.empty() ? kubelet::usual_runtime_sockets()
                                                        : std::vector<std::string>{node.runtime_socket})
    plugins.options.runtime_sockets.push_back(host.host_root + socket);
  CARVE_TRY_VOID(apply_cluster(node, &plugins.options, log));
  CARVE_TRY(plugins.api, kube::open(node.kubeconfig, clock, log));
  return plugins;
}

/// Runs the agent once. Returns its exit code; kSettingsChanged: its settings changed.
int run_agent_once(const HostOptions& given, const NodeOptions& node) {
  HostOptions options = given;
  default_access(&options);
  process::raise_file_limit();  // the agent needs a pidfd per process to notice its end
  const sigset_t stop_signals = block_stop_signals();

  Log log;
  SystemClock clock;
  if (!node.name.empty() && node.kept_by < 0) {
    PluginOptions wanted;
    if (auto applied = apply_cluster(node, &wanted, log); !applied) return report(applied.error());
    const auto stays = [&node, &log] {
      PluginOptions now;
      return apply_cluster(node, &now, log) && now.slots;
    };
    if (wanted.slots) return keep_own_agent(wanted, stays, stop_signals, clock, log);
  }
  const auto xid_policy = xid_policy_of(options);
  if (!xid_policy) return report(xid_policy.error());
  ConfigWatch agreed(node.cluster_config, can_start_with, clock, log);  // before they are read
  const Thread watching_cluster_config("cluster-config", [&](const std::stop_token& stop) { agreed.run({}, stop); });
  auto configured = watch_configuration(given, node, clock, log);
  const Thread watching_config("agent-config", [&](const std::stop_token& stop) { configured.run({}, stop); });
  const auto changed = [&] { return agreed.changed() || configured.changed(); };
  auto plugins = plugins_of(options, node, clock, log);
  if (!plugins) return report(plugins.error());
  const bool node_agent = plugins->has_value();
  if (node_agent) (*plugins)->options.starts_again = changed;
  std::unique_ptr<TakeOver> early;
  auto file = open_journal(options, node_agent ? &(*plugins)->options : nullptr, stop_signals, log, &early);
  if (!file) return report(file.error());
  if (!file->has_value()) return changed() ? kSettingsChanged : kExitOk;
  JournalOnDisk journal(std::move(**file));
  // Only now: until the journal is open, these folders belong to the previous agent.
  if (auto made = make_folders_for(options, !node_agent); !made) return report(made.error());
  auto cgroups = open_cgroups(options, node_agent);
  nvml::Client gpu(worker_options(options), clock, log);
  const auto pages = make_pages(options);
  cdi::CdiFiles devices({options.cdi_dir, options.host_root, options.driver_uses, options.whole_dir()});
  process::ProcFs processes;
  cgroup::PodGroups containers;
  AgentConfig config = config_of(options, !node_agent);
  config.xid_policy = *xid_policy;
  files::KnownCardsFile known_cards(options.state_dir + "/cards.json");
  files::HistoryFolder history(options.state_dir + "/history");
  const auto card_files = open_card_files(options, config, node_agent, log);
  if (!card_files) return report(card_files.error());
  const std::string library = config.library_folder;
  const auto make_links = [library](const std::string& driver_version) {
    return mountns::LibraryStore::make_links(library, driver_version);
  };
  agent::Agent agent(config, AgentWorld{.gpu = gpu,
                                        .pages = *pages,
                                        .cgroups = cgroups ? cgroups->get() : nullptr,
                                        .cgroup_error = cgroups ? std::string() : cgroups.error().what,
                                        .journal = journal,
                                        .devices = devices,
                                        .processes = processes,
                                        .clock = clock,
                                        .log = log,
                                        .prepare_links = make_links,
                                        .containers = &containers,
                                        .known_cards = &known_cards,
                                        .card_files = card_files->get(),
                                        .history = &history});
  const auto specs = published(devices);
  if (auto restored = agent.restore(); !restored) {
    Error error = restored.error();
    if (error.code == Code::kDataLoss) error.what += files::journal_remedy(options.state_dir + "/journal.d");
    return report(error);
  }
  // Not on a single machine: scripts around `carve run` and `carve slice create` may have mounts that no agent sees.
  if (node_agent) remove_old_libraries(options, library, specs, log);
  auto server = api::Server::open(options.agent_socket(), agent, log);
  if (!server) return report(server.error());
  log.info("agent serves", {{"socket", options.agent_socket()}});
  node::ClaimHolders claims;
  if (*plugins) (*plugins)->options.claims = &claims;
  int exit_code = kExitOk;
  {
    const Thread serving("agent-socket", [&](const std::stop_token& stop) { (*server)->run(stop); });
    const Thread reaping("reaper", [&](const std::stop_token& stop) { agent.run_reaper(stop); });
    const Thread watching("second-line", [&](const std::stop_token& stop) { agent.run_watch(clock, stop); });
    const Thread judging("card-health", [&](const std::stop_token& stop) { agent.run_health(stop); });
    const Thread recording("history", [&](const std::stop_token& stop) { agent.run_history(clock, stop); });
    std::unique_ptr<http::Server> port;
    if (node_agent && !node.listen.empty()) {
      auto opened = open_agent_port(node.listen, agent, claims, node.name, node.crashes, log);
      if (!opened) log.warn("metrics are not served", {{"listen", node.listen}, {"error", opened.error().what}});
      if (opened) port = std::move(*opened);
    }
    std::atomic<bool> failed = false;
    Thread kubelet;
    if (*plugins) {
      kubelet = Thread("kubelet", [&](const std::stop_token& stop) {
        plugins::WaitingDra* waiting = early ? &early->driver() : nullptr;
        auto served = run_plugins((*plugins)->options, agent, *(*plugins)->api, clock, log, stop, waiting);
        if (!served) {
          log.error("the kubelet plugins cannot be opened", {{"error", served.error().what}});
          failed = true;
          ::kill(::getpid(), SIGTERM);  // the DaemonSet restarts it, and shows the failure
        }
      });
    }
    Thread handover;
    if (early) {
      handover = Thread("handover", [&](const std::stop_token& stop) {
        clock.sleep_for(kHandover, stop);
        early->close();  // the WaitingDra stays: run_plugins() uses it
      });
    }
    int signal = 0;
    ::sigwait(&stop_signals, &signal);
    log.info("agent stops", {{"signal", signal}});
    exit_code = failed ? kExitFailed : changed() ? kSettingsChanged : kExitOk;
  }
  ::unlink((options.runtime_dir + "/mask").c_str());
  if (node_agent && cgroups && *cgroups) (*cgroups)->remove_root();  // so that an uninstall leaves no folder
  return exit_code;
}

}  // namespace

int run_agent(const HostOptions& given, const NodeOptions& node) {
  const int code = run_agent_once(given, node);
  // The keeper starts its child again.
  return code == kSettingsChanged && node.kept_by < 0 ? start_again() : code;
}

}  // namespace carve::cmd
