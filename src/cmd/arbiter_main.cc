#include "cmd/arbiter_main.h"
#include "cmd/stop_signals.h"

#include <unistd.h>

#include <csignal>

#include "adapter/arbiter/arbiter_client.h"
#include "adapter/cgroup/cgroup2.h"
#include "arbiter/arbiter.h"
#include "base/log.h"
#include "base/thread.h"

namespace carve::cmd {

std::unique_ptr<Pages> make_pages(const HostOptions& options) {
  return std::make_unique<arbiter::ArbiterClient>(options.runtime_dir + "/arbiter/control");
}

int run_arbiter(const HostOptions& options, const std::string& trace) {
  const sigset_t stop_signals = block_stop_signals();
  Log log;
  arbiter::Options arbiter;
  arbiter.runtime_folder = options.runtime_dir;
  arbiter.trace_path = trace;
  if (!options.cgroup_root.empty()) {
    if (auto spelled = cgroup::Cgroup2::spelled(options.cgroup_root); spelled) {
      arbiter.groups_folder = options.cgroup_root;
      arbiter.groups_path = std::move(*spelled);
    } else {  // the agent creates no slice that would need a cgroup there
      log.warn("slices cannot have cgroups of their own", {{"error", spelled.error().what}});
    }
  }
  Result<void> ran;
  {
    const Thread serving("arbiter", [&](const std::stop_token& stop) {
      ran = arbiter::run(arbiter, log, stop);
      ::kill(::getpid(), SIGTERM);  // ends the wait below if it was not a signal that ended run()
    });
    int signal = 0;
    ::sigwait(&stop_signals, &signal);
  }
  return ran ? kExitOk : report(ran.error());
}

}  // namespace carve::cmd
