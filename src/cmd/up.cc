#include <fmt/core.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "abi/hello.h"
#include "adapter/api/client.h"
#include "adapter/cdi/card_files.h"
#include "adapter/process/text_file.h"
#include "app/cli/views.h"
#include "cmd/config.h"
#include "cmd/options.h"
#include "cmd/services.h"
#include "cmd/simulated.h"

// carve up: starts the arbiter, the agent and the simulated driver if requested, and restarts them when they end. If
// `carve up` itself is killed, they keep running, and the next `carve up` takes them over. carve down ends all of them.
namespace carve::cmd {
namespace {

constexpr std::chrono::seconds kReadyWithin{30};
constexpr std::chrono::seconds kGrace{5};

std::vector<std::string> host_flags(const HostOptions& host) {
  std::vector<std::string> flags = {"--runtime-dir", host.runtime_dir, "--state-dir", host.state_dir,
                                    "--cdi-dir",     host.cdi_dir,     "--lib-dir",   host.libraries()};
  const auto add = [&flags](const char* flag, const std::string& value) {
    if (!value.empty()) flags.insert(flags.end(), {flag, value});
  };
  add("--lib-source", host.lib_source);
  add("--driver-root", host.driver_root);
  add("--cgroup-root", host.cgroup_root);
  add("--health-policy", host.health_policy);
  add("--config", host.config);
  add("--own-devices", host.own_devices ? "on" : "off");
  add("--own-devices-group", host.own_devices_group);
  return flags;
}

/// The file with the next link of the dashboard.
std::string link_file(const HostOptions& host) { return host.runtime_dir + "/dashboard.link"; }

std::vector<Service> services_of(const UpOptions& options, const HostOptions& host,
                                 const SimulatedDriver& simulated) {
  std::vector<Service> services;
  if (!options.simulate.empty()) {
    services.emplace_back(
        "driver", simulated.program,
        std::vector<std::string>{"--profile", options.simulate, "--socket", simulated.socket},
        host.runtime_dir);
  }
  std::vector<std::string> arbiter = {"arbiter", "--runtime-dir", host.runtime_dir};
  if (const auto groups = cgroup_folder(host); groups) arbiter.insert(arbiter.end(), {"--cgroup-root", *groups});
  services.emplace_back("arbiter", own_path(), arbiter, host.runtime_dir);
  std::vector<std::string> agent = {"agent", "--standalone"};
  const auto flags = host_flags(host);
  agent.insert(agent.end(), flags.begin(), flags.end());
  for (const auto& mount : host.driver_mounts) agent.insert(agent.end(), {"--driver-mount", mount});
  services.emplace_back("agent", own_path(), agent, host.runtime_dir);
  if (!options.dashboard.empty()) {
    services.emplace_back("dashboard", own_path(),
                          std::vector<std::string>{"dashboard", "--runtime-dir", host.runtime_dir, "--listen",
                                                   options.dashboard, "--link-file", link_file(host)},
                          host.runtime_dir);
  }
  return services;
}

bool wait_for_path(const std::string& path, const Service& service, std::chrono::milliseconds timeout) {
  for (auto left = timeout; left.count() > 0; left -= std::chrono::milliseconds(20)) {
    if (::access(path.c_str(), F_OK) == 0) return true;
    if (!service.lives()) return false;
    ::poll(nullptr, 0, 20);
  }
  return false;
}

/// Waits until the agent and the arbiter answer and the cards are known, a process has ended, or the time is over.
Result<AgentView> wait_ready(const HostOptions& host, const std::vector<Service>& services) {
  api::Client agent(host.agent_socket());
  const SystemClock clock;
  const auto deadline = clock.now() + kReadyWithin;
  Result<AgentView> view = fail(Code::kUnavailable, "not asked yet");
  while (clock.now() < deadline) {
    view = agent.view({});
    const bool driver_known = view && (view->gpu_state == "ok" || view->gpu_state == "absent");
    if (view && view->arbiter_state == "ok" && driver_known) return view;
    for (const auto& service : services) {
      if (service.lives()) continue;
      return fail(Code::kUnavailable, service.name() + " ended at its start:\n" + service.last_words());
    }
    ::poll(nullptr, 0, 25);
  }
  if (view) return view;  // the agent runs; the view shows what is missing
  return fail(Code::kDeadlineExceeded, "not ready after 30 s: " + view.error().what);
}

/// Prints the dashboard's link, or why there is none: the machine works without it.
void show_link(const HostOptions& host, const Service& dashboard) {
  const bool there = wait_for_path(link_file(host), dashboard, std::chrono::seconds(5));
  const auto link = there ? process::read_text(link_file(host)) : Result<std::string>(fail(Code::kUnavailable, ""));
  if (link)
    std::printf("dashboard: %s", link->c_str());
  else
    std::fprintf(stderr, "carve: there is no dashboard: %s\n", dashboard.last_words().c_str());
}

/// The slices that still exist, from the agent or, if it does not answer, from their cgroups.
std::vector<std::string> living_slices(const HostOptions& host) {
  std::vector<std::string> ids;
  if (const auto view = api::Client(host.agent_socket()).view({})) {
    for (const auto& slice : view->slices) ids.push_back(slice.id);
    return ids;
  }
  const auto folder = cgroup_folder(host);
  const auto names =
      folder ? process::list_folder(*folder) : Result<std::vector<std::string>>(fail(Code::kNotFound, ""));
  for (const auto& name : names ? *names : std::vector<std::string>()) {
    const auto events = process::read_text(*folder + "/" + name + "/cgroup.events");
    if (events && events->find("populated 1") != std::string::npos) ids.push_back(name);
  }
  return ids;
}

/// Removes sockets, locks and empty folders. The logs stay.
void clean(const HostOptions& host, std::vector<Service>& services) {
  for (auto& service : services) service.forget();
  for (const char* name : {"/agent.sock", "/mask", "/up.lock", "/dashboard.link"})
    ::unlink((host.runtime_dir + name).c_str());
  ::rmdir(host.slices_dir().c_str());
  ::rmdir(host.whole_dir().c_str());
  const std::string arbiter = host.runtime_dir + "/arbiter";
  while (::umount2((arbiter + "/pages").c_str(), MNT_DETACH) == 0) {
  }
  ::rmdir((arbiter + "/pages").c_str());
  std::error_code ignored;
  std::filesystem::remove_all(arbiter + "/lifelines", ignored);
  ::unlink((arbiter + "/control").c_str());
  ::rmdir(arbiter.c_str());
  if (const auto folder = cgroup_folder(host)) ::rmdir(folder->c_str());
  // abi::kDriverFolder stays, empty: all instances on this host share it. Removing a folder removes, in all mount
  // namespaces, what the slices of other instances have mounted there (observed: a slice lost libnvidia-ml.so.1 while
  // another instance ended).
}

/// Restores the device files that own-devices closed. Call it after the agent has ended; a running agent closes them
/// again.
Result<void> restore_devices(const HostOptions& host) {
  CARVE_TRY(const auto group, device_group(host));
  const auto boot = process::read_text("/proc/sys/kernel/random/boot_id");
  const auto left = cdi::restore_card_files(
      {cdi::card_file_record(host.state_dir), boot ? boot->substr(0, boot->find('\n')) : std::string(), group});
  if (!left) return fail_in("device files", left.error());
  for (const auto& text : *left) std::fprintf(stderr, "carve: %s: it is not changed\n", text.c_str());
  return {};
}

void stop_all(std::vector<Service>& services) {
  // The agent first, so that it sends the arbiter no more calls. The driver last.
  for (auto it = services.rbegin(); it != services.rend(); ++it) it->stop(kGrace);
}

/// Runs until a stop signal, and restarts processes that end.
void supervise(std::vector<Service>& services, int signal_fd) {
  const SystemClock clock;
  for (;;) {
    std::vector<pollfd> items = {{signal_fd, POLLIN, 0}};
    bool waiting = false;
    for (auto& service : services) {
      if (service.tend(clock.now())) {
        std::fprintf(stderr, "carve: %s ended; %s\n", service.name().c_str(),
                     service.lives() ? "it is restarted" : "it will be restarted");
      }
      waiting = waiting || !service.lives();
      if (service.pidfd() >= 0) items.push_back({service.pidfd(), POLLIN, 0});
    }
    ::poll(items.data(), items.size(), waiting ? 50 : -1);
    if ((items[0].revents & POLLIN) != 0) return;
  }
}

int stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC);
}

Result<void> start_all(std::vector<Service>& services, const SimulatedDriver& simulated) {
  for (auto& service : services) {
    CARVE_TRY(const bool adopted, service.adopt());
    if (adopted) {
      std::fprintf(stderr, "carve: takes over the running %s (process %d)\n", service.name().c_str(),
                   static_cast<int>(service.pid()));
      continue;
    }
    if (auto started = service.start(); !started) return fail_in("start " + service.name(), started.error());
    if (service.name() == "driver" && !wait_for_path(simulated.socket, service, std::chrono::seconds(10))) {
      return fail(Code::kInvalidArgument, "--simulate: " + service.last_words());
    }
  }
  return {};
}

int end_of_up(const HostOptions& host, std::vector<Service>& services) {
  const auto living = living_slices(host);
  if (living.empty()) {
    stop_all(services);
    clean(host, services);
    if (auto restored = restore_devices(host); !restored) return report(restored.error());
    std::printf("carve: stopped\n");
    return kExitOk;
  }
  std::printf(
      "carve: %zu slice(s) still run (%s, …); arbiter and agent keep running for them. `carve up` takes over, "
      "`carve down --force` ends the slices.\n",
      living.size(), living.front().c_str());
  return kExitOk;
}

tl::unexpected<Error> needs_root(const char* what) {
  return fail(Code::kPermissionDenied,
              std::string(what) + " needs root: it creates cgroups, mount points and sockets");
}

}  // namespace

int run_up(const UpOptions& options) {
  if (!options.dashboard.empty()) {
    if (auto legal = check_loopback("--dashboard", options.dashboard); !legal) return report(legal.error());
  }
  if (options.check_config) {
    std::printf("carve: the configuration is valid\n");
    return kExitOk;
  }
  if (::geteuid() != 0) return report(needs_root("carve up").value());
  HostOptions host = options.host;
  if (auto made = process::make_folders(host.runtime_dir, 0755); !made) return report(made.error());
  auto lock = process::LockFile::take(host.runtime_dir + "/up.lock");
  if (!lock && lock.error().code == Code::kAlreadyExists) {
    return report(
        {Code::kAlreadyExists, "`carve up` already runs: " + lock.error().what + "; `carve down` stops it"});
  }
  if (!lock) return report(lock.error());
  SimulatedDriver simulated;
  if (!options.simulate.empty()) {
    auto prepared = prepare_simulated(host);
    if (!prepared) return report(prepared.error());
    simulated = *prepared;
    host.driver_root = simulated.driver_root;
    host.driver_mounts.push_back(simulated.mount);
  }
  const Fd signals(stop_signals());
  auto services = services_of(options, host, simulated);
  auto started = start_all(services, simulated);
  Result<AgentView> view;
  if (started) {
    view = wait_ready(host, services);
    if (!view) started = tl::unexpected(view.error());
  }
  if (!started) {
    const int code = report(started.error());
    if (living_slices(host).empty() && started.error().code != Code::kFailedPrecondition) {
      stop_all(services);
      clean(host, services);
      if (auto restored = restore_devices(host); !restored) report(restored.error());
    }
    return code;
  }
  std::printf("ready: %s; agent at %s, logs in %s/log%s\n", cli::describe_cards(*view).c_str(),
              host.agent_socket().c_str(), host.runtime_dir.c_str(),
              view->library_error.empty() && view->cgroup_error.empty()
                  ? ""
                  : "; something is wrong, run `carve doctor`");
  if (!options.dashboard.empty()) show_link(host, services.back());
  std::fflush(stdout);
  supervise(services, signals.get());
  return end_of_up(host, services);
}

int run_down(const DownOptions& options) {
  if (::geteuid() != 0) return report(needs_root("carve down").value());
  HostOptions host = options.host;
  if (const auto view = api::Client(host.agent_socket()).view({}); view && !view->state_folder.empty()) {
    host.state_dir = view->state_folder;  // the agent may have been started with other flags
  }
  auto living = living_slices(host);
  if (!living.empty() && !options.force) {
    return report(
        {Code::kFailedPrecondition,
         fmt::format("{} slice(s) still run ({}, …): end them first (`carve slice list`), or use --force to kill "
                     "them",
                     living.size(), living.front())});
  }
  api::Client agent(host.agent_socket());
  for (const auto& id : living) {
    if (agent.release({}, id, true)) continue;
    const auto folder = cgroup_folder(host);
    if (folder) static_cast<void>(process::write_text(*folder + "/" + id + "/cgroup.kill", "1"));
  }
  for (int i = 0; i < 250 && !living_slices(host).empty(); ++i) ::poll(nullptr, 0, 20);
  const auto supervisor = process::LockFile::holder(host.runtime_dir + "/up.lock");
  if (!supervisor) return report(supervisor.error());
  if (const auto& process = *supervisor) {
    process::send_signal(*process, SIGTERM);
    process::send_signal(*process, SIGCONT);
    if (!process::wait_gone(*process, std::chrono::seconds(30))) {
      return report({Code::kDeadlineExceeded,
                     fmt::format("`carve up` (process {}) did not stop within 30 s", process->pid)});
    }
  }
  // Processes that a killed supervisor left behind.
  std::vector<Service> left;
  std::vector<std::string> locks;
  for (const char* name : {"driver", "arbiter", "agent", "dashboard"}) {
    locks.push_back(host.runtime_dir + "/" + name + ".lock");
    left.emplace_back(name, "", std::vector<std::string>(), host.runtime_dir);
  }
  // The lock of a process that still runs is not removed, because only the lock identifies the process.
  if (auto stopped = process::stop_holders(locks, kGrace); !stopped) return report(stopped.error());
  clean(host, left);
  if (auto restored = restore_devices(host); !restored) return report(restored.error());
  std::printf("carve: down\n");
  return kExitOk;
}

}  // namespace carve::cmd
