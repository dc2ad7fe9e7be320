#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
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
#include "adapter/process/file_limit.h"
#include "adapter/process/proc_fs.h"
#include "adapter/process/text_file.h"
#include "app/agent/agent.h"
#include "base/thread.h"
#include "base/unix_address.h"
#include "cmd/agent_main.h"
#include "cmd/arbiter_main.h"
#include "cmd/config.h"
#include "cmd/options.h"
#include "cmd/stop_signals.h"
#include "codec/health/xid_policy_text.h"
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

/// The journal, which only one agent has at a time. nullopt: a stop signal arrived while another agent had it.
Result<std::optional<files::JournalFile>> open_journal(const HostOptions& options, NodePart* node,
                                                       const sigset_t& stop) {
  CARVE_TRY_VOID(process::make_folders(options.state_dir, 0755));
  const std::string folder = options.state_dir + "/journal.d";
  CARVE_TRY_VOID(process::make_folders(folder, 0700));
  for (int round = 0;; ++round) {
    auto file = files::JournalFile::open(folder);
    if (file) return std::optional<files::JournalFile>(std::move(*file));
    if (file.error().code != Code::kFailedPrecondition || node == nullptr) return fail_in("journal", file.error());
    CARVE_TRY_VOID(node->journal_is_taken(round, file.error()));
    const timespec wait = {0, 10'000'000};
    if (::sigtimedwait(&stop, nullptr, &wait) > 0) return std::optional<files::JournalFile>();
  }
}

}  // namespace

Result<XidPolicy> xid_policy_of(const HostOptions& options) {
  if (options.health_policy.empty()) return built_in_xid_policy();
  const auto text = process::read_text(options.health_policy);
  if (!text) return fail_in("--health-policy", text.error());
  return codec::parse_xid_policy(options.health_policy, *text, built_in_xid_policy());
}

int serve_agent(HostOptions options, NodePart* node, Clock& clock, Log& log, const sigset_t& stop_signals) {
  default_access(&options);
  const auto xid_policy = xid_policy_of(options);
  if (!xid_policy) return report(xid_policy.error());
  const auto ended = [node] { return node != nullptr && node->settings_changed() ? kSettingsChanged : kExitOk; };
  auto file = open_journal(options, node, stop_signals);
  if (!file) return report(file.error());
  if (!file->has_value()) return ended();
  JournalOnDisk journal(std::move(**file));
  // Only now: until the journal is open, these folders belong to the previous agent.
  if (auto made = make_folders_for(options, node == nullptr); !made) return report(made.error());
  auto cgroups = open_cgroups(options, node != nullptr);
  nvml::Client gpu(worker_options(options), clock, log);
  const auto pages = make_pages(options);
  cdi::CdiFiles devices({options.cdi_dir, options.host_root, options.driver_uses, options.whole_dir()});
  process::ProcFs processes;
  cgroup::PodGroups containers;
  AgentConfig config = config_of(options, node == nullptr);
  config.xid_policy = *xid_policy;
  files::KnownCardsFile known_cards(options.state_dir + "/cards.json");
  files::HistoryFolder history(options.state_dir + "/history");
  const auto card_files = open_card_files(options, config, node != nullptr, log);
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
  if (node != nullptr) remove_old_libraries(options, library, specs, log);
  auto server = api::Server::open(options.agent_socket(), agent, log);
  if (!server) return report(server.error());
  log.info("agent serves", {{"socket", options.agent_socket()}});
  int exit_code = kExitOk;
  {
    const Thread serving("agent-socket", [&](const std::stop_token& stop) { (*server)->run(stop); });
    const Thread reaping("reaper", [&](const std::stop_token& stop) { agent.run_reaper(stop); });
    const Thread watching("second-line", [&](const std::stop_token& stop) { agent.run_watch(clock, stop); });
    const Thread judging("card-health", [&](const std::stop_token& stop) { agent.run_health(stop); });
    const Thread recording("history", [&](const std::stop_token& stop) { agent.run_history(clock, stop); });
    const auto on_node = node != nullptr ? node->serve(agent) : nullptr;
    int signal = 0;
    ::sigwait(&stop_signals, &signal);
    log.info("agent stops", {{"signal", signal}});
    exit_code = on_node && on_node->failed() ? kExitFailed : ended();
  }
  ::unlink((options.runtime_dir + "/mask").c_str());
  if (node != nullptr && cgroups && *cgroups) (*cgroups)->remove_root();  // so that an uninstall leaves no folder
  return exit_code;
}

int run_agent(const HostOptions& options, const NodeOptions& node) {
  process::raise_file_limit();  // the agent needs a pidfd per process to notice its end
  const sigset_t stop_signals = block_stop_signals();
  Log log;
  SystemClock clock;
  if (!node.name.empty()) return run_node_agent(options, node, clock, log, stop_signals);
  return serve_agent(options, nullptr, clock, log, stop_signals);
}

}  // namespace carve::cmd
