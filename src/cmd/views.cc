#include "app/cli/views.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "abi/page.h"
#include "adapter/api/client.h"
#include "adapter/api/messages.h"
#include "adapter/cdi/device_nodes.h"
#include "adapter/cgroup/cgroup2.h"
#include "adapter/host/host_files_on_disk.h"
#include "adapter/mountns/library_store.h"
#include "adapter/process/host_root.h"
#include "adapter/process/spawn.h"
#include "adapter/process/text_file.h"
#include "app/cli/doctor.h"
#include "app/cli/node/node_checks.h"
#include "app/cli/slice_table.h"
#include "cmd/document.h"
#include "cmd/live.h"
#include "cmd/options.h"
#include "codec/host/findings.h"
#include "codec/journal/journal_text.h"

namespace carve::cmd {
namespace {

int number_in(const std::string& path, int otherwise) {
  const auto text = process::read_text(path, 32);
  return text ? std::atoi(text->c_str()) : otherwise;
}

std::string user_namespaces_error() {
  if (number_in("/proc/sys/user/max_user_namespaces", 1) == 0) return "sysctl user.max_user_namespaces is 0";
  if (number_in("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0) {
    return "sysctl kernel.unprivileged_userns_clone is 0";
  }
  if (number_in("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) == 1) {
    return "sysctl kernel.apparmor_restrict_unprivileged_userns is 1";
  }
  return {};
}

bool folder_writable(const std::string& folder, std::string* why) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0) {
    *why = folder + ": no such folder";
    return false;
  }
  if ((info.f_flag & ST_RDONLY) != 0) {
    *why = folder + " is on a read-only file system";
    return false;
  }
  return true;
}

/// Whether a process of Carve holds its lock; nullopt: this user may not see that.
std::optional<bool> lives(const HostOptions& options, const char* name) {
  const auto holder = process::LockFile::holder(options.runtime_dir + "/" + name + ".lock");
  if (!holder && holder.error().code == Code::kPermissionDenied) return std::nullopt;
  return !holder || *holder;  // an error: the lock is held by a process that the file does not name
}

/// Finds out whether slices can have a cgroup. A running agent's answer counts, because it may see another mount than
/// this command.
void look_at_cgroups(const std::optional<AgentView>& view, cli::HostFacts* facts) {
  const auto mount = cgroup::Cgroup2::find_mount();
  if (mount) facts->cgroup_mount = *mount;
  struct statvfs info = {};
  facts->cgroup_read_only = mount && ::statvfs(mount->c_str(), &info) == 0 && (info.f_flag & ST_RDONLY) != 0;
  if (view) {
    facts->cgroup_error = view->cgroup_error;
  } else if (!mount) {
    facts->cgroup_error = mount.error().what;
  } else if (facts->cgroup_read_only) {
    facts->cgroup_error = *mount + " is mounted read-only";
  }
}

/// Why an agent could not start with its journal; empty: it could, there is no journal, or only root can read it.
std::string journal_error(const std::string& state_folder) {
  const std::string path = state_folder + "/journal.d/journal";
  const auto text = process::read_text(path, 256U << 20U);
  if (!text) return {};
  const auto replay = codec::replay_journal(*text);
  return replay ? std::string() : path + ": " + replay.error().what;
}

/// Collects the facts about the cards' device files: the missing ones, and owner and mode of the others.
void look_at_card_files(const AgentView& view, cli::HostFacts* facts) {
  for (const auto& card : view.cards) {
    if (card.card.minor < 0) continue;
    const std::string node = "/dev/nvidia" + std::to_string(card.card.minor);
    struct stat info = {};
    if (::lstat(node.c_str(), &info) != 0) {
      facts->missing_nodes.push_back(node);
    } else {
      facts->card_files.push_back({node, info.st_mode & 07777U, info.st_uid, info.st_gid});
    }
  }
  const auto params = process::read_text("/proc/driver/nvidia/params");
  const auto rules = cdi::node_rules(params ? *params : std::string());
  if (params && rules.modify) facts->driver_sets_mode = rules.mode;
}

cli::HostFacts look_at_host(const HostOptions& options, const std::optional<AgentView>& view) {
  cli::HostFacts facts;
  facts.runtime_folder = options.runtime_dir;
  // The folders of the running agent, which may have been started with other flags than this command.
  facts.state_folder = view && !view->state_folder.empty() ? view->state_folder : options.state_dir;
  facts.library_folder = view && !view->library_folder.empty() ? view->library_folder : options.libraries();
  facts.supervisor_lives = lives(options, "up");
  facts.agent_lives = lives(options, "agent");
  facts.arbiter_lives = lives(options, "arbiter");
  facts.agent_socket_exists = ::access(options.agent_socket().c_str(), F_OK) == 0;
  struct statfs fs = {};
  facts.runtime_exists = ::statfs(options.runtime_dir.c_str(), &fs) == 0;
  facts.runtime_on_tmpfs = facts.runtime_exists && fs.f_type == TMPFS_MAGIC;
  if (view || ::access(facts.library_folder.c_str(), F_OK) == 0) {
    facts.libraries_noexec = !mountns::LibraryStore::check_executable(facts.library_folder);
  }
  if (view || ::access(facts.state_folder.c_str(), F_OK) == 0) {
    folder_writable(facts.state_folder, &facts.state_error);
    struct statvfs disk = {};
    if (::statvfs(facts.state_folder.c_str(), &disk) == 0)
      facts.state_free = Bytes(disk.f_bavail * disk.f_frsize);
  }
  look_at_cgroups(view, &facts);
  if (!view) facts.journal_error = journal_error(facts.state_folder);
  facts.user_namespaces_error = user_namespaces_error();
  const auto filesystems = process::read_text("/proc/filesystems");
  facts.overlay_known = !filesystems || filesystems->find("overlay") != std::string::npos;
  if (view) look_at_card_files(*view, &facts);
  return facts;
}

}  // namespace

int inspect(const ViewOptions& options) {
  api::Client agent(options.host.agent_socket(), api::kAgentsRestart);
  return show_watched(options.watch, options.output, [&]() -> Result<std::string> {
    CARVE_TRY(const auto view, agent.view({}));
    return is_document(options.output) ? document(api::to_json(view), options.output) : cli::render_inspect(view);
  });
}

int top(const ViewOptions& options) {
  api::Client agent(options.host.agent_socket(), api::kAgentsRestart);
  cli::SortSlices sort = cli::SortSlices::kName;
  cli::sort_from(options.sort, &sort);
  cli::SliceTable slices(sort, options.filter);
  return show_live(options, [&]() -> Result<std::string> {
    CARVE_TRY(const auto view, agent.view({}));
    if (is_document(options.output)) return document(api::to_json(view), options.output);
    if (options.output == "csv") return slices.csv({{"localhost", view, {}}});
    if (!options.sort.empty() || !options.filter.empty()) return slices.render({{"localhost", view, {}}});
    return cli::render_top(view);
  });
}

int doctor(const ViewOptions& options) {
  if (options.node && !options.host.host_root.empty()) {
    if (auto entered = process::enter_host_root(options.host.host_root); !entered) return report(entered.error());
  }
  api::Client agent(options.host.agent_socket());
  auto asked = agent.view({});
  std::optional<AgentView> view;
  if (asked) view = *asked;
  auto facts = look_at_host(options.host, view);
  if (!asked) facts.agent_error = asked.error().what;
  facts.is_node = options.node;
  auto findings = cli::diagnose(facts, view);
  if (options.node) {
    auto of_node = cli::check_node(host::HostFilesOnDisk(), view);
    findings.insert(findings.end(), of_node.begin(), of_node.end());
    cli::sort_by_severity(&findings);
  }
  const auto text = is_document(options.output) ? document(codec::to_json(findings), options.output)
                                                : Result<std::string>(cli::render_findings(findings, view));
  if (!text) return report(text.error());
  std::printf("%s", text->c_str());
  return cli::anything_wrong(findings) ? kExitFailed : kExitOk;
}

int version(const ViewOptions& options) {
  std::printf("carve %s\ncommit %s\npage ABI %u (reads from %u)\n", kVersion, kCommit, abi::kPageAbi,
              abi::kPageAbiMin);
  if (const auto view = api::Client(options.host.agent_socket()).view({})) {
    std::printf("agent %s, page ABI %u, driver %s\n", view->version.c_str(), view->page_abi,
                view->driver_version.c_str());
  }
  return kExitOk;
}

}  // namespace carve::cmd
