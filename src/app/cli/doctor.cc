#include "app/cli/doctor.h"

#include <fmt/core.h>

#include <algorithm>

#include "app/cli/views.h"

namespace carve::cli {
namespace {

constexpr Bytes kLowDisk = Bytes::mib(16);

using Findings = std::vector<Finding>;

void look_at_processes(const HostFacts& host, const std::optional<AgentView>& view, Findings& out) {
  if (host.is_node) {
    if (view) return;
    out.push_back({Severity::kError, "the agent does not answer", host.agent_error,
                   "`kubectl -n carve-system get pods -o wide -l app.kubernetes.io/component=agent` shows its pod, "
                   "`kubectl logs` the reason; running slices keep their limits meanwhile",
                   "agent-away"});
    return;
  }
  if (host.supervisor_lives == false) {
    out.push_back({Severity::kError, "no supervisor restarts Carve's processes when they die",
                   "no `carve up` runs for " + host.runtime_folder,
                   "start `carve up`; it takes over the processes and slices that still run", "no-supervisor"});
  }
  if (view) return;
  if (!host.agent_lives) {
    out.push_back({Severity::kError, "the agent does not answer", host.agent_error,
                   "run `carve doctor` as root: only root can see whether the agent runs; running slices keep their "
                   "limits",
                   "agent-away"});
  } else if (host.agent_socket_exists && !*host.agent_lives) {
    out.push_back({Severity::kError, "the agent does not run and has left a stale socket", host.agent_error,
                   "start `carve up`; it replaces the socket and takes over the slices", "agent-gone"});
  } else if (*host.agent_lives) {
    out.push_back({Severity::kError, "the agent runs but does not answer", host.agent_error,
                   "if the agent is stopped (SIGSTOP, debugger), `kill -CONT` it; otherwise kill it: running slices "
                   "keep their limits",
                   "agent-silent"});
  } else {
    out.push_back(
        {Severity::kError, "the agent does not run", host.agent_error, "start `carve up` as root", "agent-away"});
  }
  if (host.arbiter_lives == false) {
    out.push_back({Severity::kError, "the arbiter does not run",
                   "running slices keep their last share of compute, and no new slice starts",
                   "start `carve up` as root", "arbiter-away"});
  }
}

void look_at_view(const AgentView& view, Findings& out) {
  if (view.gpu_state == "absent" || view.gpu_state == "starting") {
    out.push_back({Severity::kError, "no driver: NVML is " + view.gpu_state, view.gpu_reason,
                   "install and load the NVIDIA driver (nvidia-smi must list the card), or name its folder with "
                   "--driver-root; `carve up --help` says what works without a card",
                   "driver-absent"});
  }
  if (view.gpu_state == "hanging") {
    out.push_back({Severity::kError, "NVML is hanging", view.gpu_reason,
                   "look for XID messages in dmesg, then reset the card or reboot; until NVML answers, the second line "
                   "sees no process",
                   "driver-hanging"});
  }
  if (view.arbiter_state != "ok") {
    out.push_back({Severity::kError, "the arbiter is " + view.arbiter_state, view.arbiter_reason,
                   "`carve up` restarts an arbiter that has died; a stopped one needs `kill -CONT` or `kill -9`; "
                   "meanwhile running slices keep their last share of compute, and no new slice starts",
                   "arbiter-away"});
  }
  if (!view.journal_error.empty()) {
    out.push_back(
        {Severity::kError, "the journal cannot be written", view.journal_error,
         "free space on the disk of the state folder, or make the folder writable; until then no new slice is "
         "created",
         "journal"});
  }
  if (!view.library_error.empty()) {
    out.push_back({Severity::kError, "libcarve is not usable: slices are whole cards only", view.library_error,
                   "install libcarve-cuda.so and libcarve-nvml.so next to the carve binary, or name their folder with "
                   "--lib-source",
                   "library"});
  }
  for (const auto& card : view.cards) {
    if (!card.card.health.ok) {
      out.push_back({Severity::kError, "card " + card.card.id.str() + " is unhealthy", card.card.health.reason,
                     "its slices keep running, and no new slice is placed on it; docs/health.md says what makes a card "
                     "healthy again",
                     "card-unhealthy"});
    }
    if (!card.foreign.empty()) {
      out.push_back(
          {Severity::kNote,
           fmt::format("{} process(es) outside any slice use card {}", card.foreign.size(), card.card.id.str()),
           fmt::format("first: process {} ({})", card.foreign.front().pid, card.foreign.front().command),
           "slices cannot have the memory and compute that these processes use; start them with `carve run`",
           "foreign-processes"});
    }
  }
  std::size_t breaches = 0;
  for (const auto& event : view.events) breaches += event.kind.rfind("breach-", 0) == 0 ? 1 : 0;
  if (breaches > 0) {
    const auto last = std::find_if(view.events.rbegin(), view.events.rend(),
                                   [](const auto& e) { return e.kind.rfind("breach-", 0) == 0; });
    out.push_back({Severity::kWarning,
                   fmt::format("the second line acted {} time(s) since the agent started", breaches),
                   last->kind + " " + last->slice + ": " + last->text,
                   "a process used a card without libcarve or beyond its limits; `carve top` shows the last events",
                   "second-line-acted"});
  }
}

void look_at_cgroups(const HostFacts& host, Findings& out) {
  if (host.cgroup_error.empty()) return;
  if (host.cgroup_mount.empty()) {
    out.push_back({Severity::kError, "cgroup2 is not mounted: `carve run` cannot work", host.cgroup_error,
                   "mount it: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified",
                   "no-cgroup2"});
  } else if (host.cgroup_read_only) {
    out.push_back({Severity::kError, "cgroup2 is mounted read-only: `carve run` cannot work", host.cgroup_error,
                   "mount -o remount,rw " + host.cgroup_mount +
                       "; in a container, start the container with a writable mount (--privileged, --cgroupns=host)",
                   "cgroup2-read-only"});
  } else {
    out.push_back({Severity::kError, "cgroup2 cannot be used: `carve run` cannot work", host.cgroup_error,
                   "remove the obstacle, or choose another folder below " + host.cgroup_mount + " with --cgroup-root",
                   "cgroup2-unusable"});
  }
}

void look_at_host(const HostFacts& host, bool running, Findings& out) {
  if (running && host.runtime_exists && !host.runtime_on_tmpfs) {
    out.push_back({Severity::kNote, host.runtime_folder + " is not on a tmpfs",
                   "its files survive a reboot and are stale then", "mount a tmpfs on /run", "runtime-not-tmpfs"});
  }
  if (host.libraries_noexec) {
    out.push_back({Severity::kError, host.library_folder + " is mounted noexec",
                   "no process can load libraries from this folder",
                   "remount it exec, or choose another folder with --lib-dir", "libraries-noexec"});
  }
  if (!host.state_error.empty()) {
    out.push_back({Severity::kError, "the state folder cannot be written", host.state_error,
                   "remount it read-write, or choose another folder with --state-dir", "state-folder"});
  }
  if (host.state_free && *host.state_free < kLowDisk) {
    out.push_back({Severity::kError, "the disk of " + host.state_folder + " is full",
                   to_human(*host.state_free) + " are free, the journal needs " + to_human(kLowDisk),
                   "free space; no new slice is created while the journal cannot be written", "disk-full"});
  }
  look_at_cgroups(host, out);
  if (!host.journal_error.empty()) {
    out.push_back({Severity::kError, "the journal cannot be read, so no agent starts", host.journal_error,
                   fmt::format("mv {0}/journal.d/journal {0}/journal.d/journal.damaged, then start `carve up`: it "
                               "ends the slices that still run, because without the journal their owners are unknown",
                               host.state_folder),
                   "journal-damaged"});
  }
  if (!host.user_namespaces_error.empty()) {
    out.push_back({Severity::kNote, "users other than root cannot use `carve run`", host.user_namespaces_error,
                   "allow user namespaces, or use `carve run` as root; containers are not affected",
                   "no-user-namespaces"});
  }
  if (!host.overlay_known) {
    out.push_back({Severity::kNote, "overlayfs is not loaded in the kernel",
                   "`carve run` needs it where the library folder does not contain the driver's file names",
                   "modprobe overlay", "no-overlayfs"});
  }
  for (const auto& node : host.missing_nodes) {
    out.push_back({Severity::kError, "device node " + node + " is missing", "the driver lists the card of this node",
                   "create it with `nvidia-modprobe -c0 -u`, or run `nvidia-smi` as root once", "device-node-missing"});
  }
}

constexpr std::uint32_t kOthers = 0006;  // read or write by users that are neither owner nor in the group

void look_at_open_devices(const HostFacts& host, Findings& out) {
  std::string open;
  for (const auto& file : host.card_files) {
    if ((file.mode & kOthers) == 0) continue;
    open += fmt::format("{}{} ({:04o})", open.empty() ? "" : ", ", file.path, file.mode);
  }
  if (open.empty()) return;
  out.push_back({Severity::kNote, "every local user can use the cards without a slice: " + open,
                 "own-devices is off: a process outside slices can take memory that slices were promised; "
                 "Carve shows such a process, and never kills it",
                 "`own-devices = on` in /etc/carve/carve.conf, or carve up --own-devices on: only root and slices open "
                 "the cards' files until `carve down`",
                 "devices-open"});
}

void look_at_own_devices(const HostFacts& host, const AgentView& view, Findings& out) {
  if (!view.device_error.empty()) {
    out.push_back({Severity::kError, "own-devices is on, and a card's device file is not closed", view.device_error,
                   "correct the file (nvidia-modprobe -c 0 creates it), or remove the damaged record; the agent "
                   "retries twice a second",
                   "own-devices"});
  }
  for (const auto& file : host.card_files) {
    if (file.mode == view.device_mode && file.uid == 0 && file.gid == view.device_group) continue;
    out.push_back({Severity::kWarning,
                   fmt::format("{} has mode {:04o}, owner {}, group {}; expected: {:04o}, 0, {}", file.path, file.mode,
                               file.uid, file.gid, view.device_mode, view.device_group),
                   "another program sets it again after the agent: a udev rule, nvidia-modprobe, nvidia-persistenced",
                   "the agent closes it twice a second; if this finding remains, find the program that opens it "
                   "(udevadm info " +
                       file.path + ")",
                   "device-file-mode"});
  }
  if (host.driver_sets_mode && (*host.driver_sets_mode & kOthers) != 0) {
    out.push_back({Severity::kWarning, "any local user can open the cards' device files for a moment",
                   fmt::format("nvidia-modprobe is setuid root, and the driver's parameters make it set their mode to "
                               "{:04o}; the agent takes up to half a second to close them",
                               *host.driver_sets_mode),
                   "options nvidia NVreg_ModifyDeviceFiles=0 in /etc/modprobe.d/, and load the driver again",
                   "device-file-rules"});
  }
}

const char* word(Severity severity) {
  return severity == Severity::kError     ? "ERROR  "
         : severity == Severity::kWarning ? "WARNING"
                                          : "note   ";
}

}  // namespace

std::vector<Finding> diagnose(const HostFacts& host, const std::optional<AgentView>& view) {
  Findings findings;
  look_at_processes(host, view, findings);
  if (view) look_at_view(*view, findings);
  look_at_host(host, view.has_value(), findings);
  if (view && view->own_devices) look_at_own_devices(host, *view, findings);
  if (view && !view->own_devices && !host.is_node) look_at_open_devices(host, findings);
  sort_by_severity(&findings);
  return findings;
}

void sort_by_severity(std::vector<Finding>* findings) {
  std::stable_sort(findings->begin(), findings->end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
}

bool anything_wrong(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.severity != Severity::kNote; });
}

std::string render_findings(const std::vector<Finding>& findings,
                            const std::optional<AgentView>& view) {
  std::string out;
  if (view) out += describe_cards(*view) + fmt::format("; {} slice(s)\n", view->slices.size());
  for (const auto& finding : findings) {
    out += fmt::format("{} {} [{}]\n        cause: {}\n        fix:   {}\n", word(finding.severity),
                       finding.what, finding.id, finding.cause, finding.fix);
  }
  out += anything_wrong(findings) ? "" : "nothing is wrong\n";
  return out;
}

}  // namespace carve::cli
