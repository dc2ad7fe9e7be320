#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "adapter/api/client.h"
#include "adapter/files/journal_file.h"
#include "adapter/kube/kube_client.h"
#include "adapter/process/text_file.h"
#include "app/node/leave.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/cluster_config.h"
#include "cmd/options.h"
#include "cmd/stop_signals.h"

// carve down --node-name: removes what an uninstall leaves on a Kubernetes node, from the Node object and from the
// disk. deploy/jobs/down.yaml runs it on every node after the agent and the arbiter have ended.
namespace carve::cmd {
namespace {

namespace fs = std::filesystem;

// Pods that are being deleted have 30 s. Their nodes may be busy.
constexpr std::chrono::seconds kPatience{90};

/// The agent's folders on the host, as paths of this process. `carve keep-files` writes the last one.
std::vector<std::string> folders_of(const DownOptions& options) {
  const auto& host = options.host;
  return {host.host_root + host.state_dir, host.host_root + host.runtime_dir,
          host.host_root + options.kubelet_dir + "/plugins/gpu.elasticgpu.io",
          host.host_root + "/var/lib/carve-scheduler"};
}

/// Carve's files in folders of others: the folder and the prefix of the names. An agent that was killed leaves them.
std::vector<std::pair<std::string, std::string>> files_of(const DownOptions& options) {
  std::string cdi = options.host.cdi_dir;
  if (cdi.rfind("/var/run/", 0) == 0) cdi.erase(0, 4);  // the link's target; below host_root the link does not work
  const auto& root = options.host.host_root;
  const auto kubelet = root + options.kubelet_dir;
  return {{root + cdi, "carve-slice-"},
          {kubelet + "/device-plugins", "carve-slots"},
          {kubelet + "/plugins_registry", "gpu.elasticgpu.io-"}};
}

/// Waits until no agent runs on this node. No agent can start while the returned lock is held. An agent that does not
/// answer may be stopped: only the lock of its journal shows that it has ended. nullopt: no agent ever kept a journal
/// there.
Result<std::optional<Fd>> wait_for_agents_end(const std::string& socket, const std::string& journal) {
  SystemClock clock;
  const auto start = clock.now();
  for (;;) {
    std::string reason = "an agent answers at " + socket;
    if (!api::Client(socket).view({})) {
      auto lock = files::lock_journal(journal);
      if (lock) return std::optional<Fd>(std::move(*lock));
      if (lock.error().code == Code::kNotFound) return std::nullopt;
      if (lock.error().code != Code::kFailedPrecondition) return tl::unexpected(lock.error());
      reason = lock.error().what;
    }
    if (clock.now() - start >= kPatience) {
      return fail(Code::kFailedPrecondition,
                  fmt::format("after {} s: {}; first delete DaemonSet carve-agent", kPatience.count(), reason));
    }
    clock.sleep_for(std::chrono::seconds(1), {});
  }
}

Result<void> no_holders(KubeApi& api, const std::string& node) {
  CARVE_TRY(const auto pods, node::holders_on(api, node));
  if (pods.empty()) return {};
  return fail(Code::kFailedPrecondition,
              fmt::format("{} pod(s) with cards of Carve are on node {} ({}, …); first delete them, or use --force",
                          pods.size(), node, pods.front()));
}

/// The extended resources that Carve wrote to this node. A ConfigMap with a mistake must not keep anything installed.
Result<std::vector<std::string>> totals_of(const std::string& path) {
  if (path.empty()) return std::vector<std::string>();
  const auto text = process::read_text(path);
  if (!text && text.error().code == Code::kNotFound) return std::vector<std::string>();
  if (!text) return tl::unexpected(text.error());
  const auto config = parse_cluster_config(*text, path);
  if (config) return config->totals();
  const auto legal = legal_lines(*text);
  std::fprintf(
      stderr, "carve: %s\ncarve: down continues with the valid lines%s\n", config.error().what.c_str(),
      legal.nvidia == NvidiaPlugin::kDevicePlugin ? "" : "; the total of nvidia.com/gpu on the Node is left as it is");
  return legal.totals();
}

Result<void> leave_cluster(const DownOptions& options) {
  SystemClock clock;
  Log log;
  const auto api = kube::open(options.kubeconfig, clock, log);
  if (!api) return fail_in("API server", api.error());
  CARVE_TRY(const auto totals, totals_of(options.cluster_config));
  if (!options.force) CARVE_TRY_VOID(no_holders(**api, options.node));
  const auto gone = node::leave_node(**api, options.node, totals);
  if (!gone) return fail_in("Node " + options.node, gone.error());
  for (const auto& name : *gone) std::printf("Node %s: %s removed\n", options.node.c_str(), name.c_str());
  return {};
}

Result<void> remove_folders(const DownOptions& options) {
  for (const auto& folder : folders_of(options)) {
    std::error_code error;
    const auto removed = fs::remove_all(folder, error);
    if (error) return fail(Code::kInternal, folder + ": " + error.message());
    if (removed > 0) std::printf("%s removed\n", folder.c_str());
  }
  return {};
}

Result<void> remove_files(const DownOptions& options) {
  for (const auto& [folder, prefix] : files_of(options)) {
    std::error_code error;
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().filename().string().rfind(prefix, 0) == 0) found.push_back(entry.path());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return fail(Code::kInternal, folder + ": " + error.message());
    }
    for (const auto& file : found) {
      fs::remove(file, error);
      if (error) return fail(Code::kInternal, file.string() + ": " + error.message());
      std::printf("%s removed\n", file.c_str());
    }
  }
  return {};
}

}  // namespace

int run_node_down(const DownOptions& options) {
  if (::geteuid() != 0) return report({Code::kPermissionDenied, "carve down needs root: it removes root's files"});
  const auto stop_signals = block_stop_signals();
  const auto runtime_dir = options.host.host_root + options.host.runtime_dir;
  const auto journal = options.host.host_root + options.host.state_dir + "/journal.d";
  const auto alone = wait_for_agents_end(runtime_dir + "/agent.sock", journal);
  if (!alone) return report(alone.error());
  if (auto done = leave_cluster(options); !done) return report(done.error());
  if (auto done = remove_folders(options); !done) return report(done.error());
  if (auto done = remove_files(options); !done) return report(done.error());
  std::printf("carve: nothing is left on node %s\n", options.node.c_str());
  std::fflush(stdout);
  if (options.stay) {
    int signal = 0;
    ::sigwait(&stop_signals, &signal);
  }
  return kExitOk;
}

}  // namespace carve::cmd
