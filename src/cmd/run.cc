#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "adapter/api/client.h"
#include "adapter/mountns/enclosure.h"
#include "cmd/options.h"

// carve run: this process requests the slice, joins its cgroup and its mount namespace, and executes the command in its
// own place. So signals, terminal, job control and exit code are the command's own. No process of Carve stays between.
namespace carve::cmd {
namespace {

Result<Grant> ask_for_slice(AgentApi& agent, AllocateRequest request) {
  const auto wait = request.wait;
  request.wait.reset();
  auto grant = agent.allocate({}, request, {});
  if (grant || !wait || grant.error().code != Code::kResourceExhausted) return grant;
  std::fprintf(stderr, "carve: waiting: %s\n", grant.error().what.c_str());
  request.wait = wait;
  return agent.allocate({}, request, {});
}

/// Joins the slice. An agent that ended after the grant is restarted within seconds and still has the slice, so the
/// call is retried. A second join of the same process changes nothing.
Result<void> join(AgentApi& agent, const std::string& slice) {
  constexpr std::chrono::seconds kAnotherAgent{10};
  constexpr std::chrono::milliseconds kAgain{100};
  const auto until = std::chrono::steady_clock::now() + kAnotherAgent;
  auto joined = agent.join({}, slice);
  while (!joined && joined.error().code == Code::kUnavailable && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kAgain);
    joined = agent.join({}, slice);
  }
  return joined;
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int err = errno;
  std::fprintf(stderr, "carve: %s: %s\n", argv[0], std::strerror(err));
  ::_exit(err == ENOENT ? kExitNotFound : kExitCannotExecute);
}

}  // namespace

int run_command(const RunOptions& options) {
  auto request = request_of(options.ask);
  if (!request) return report(request.error());
  for (const auto& word : options.command) request->name += (request->name.empty() ? "" : " ") + word;
  request->name = request->name.substr(0, 200);
  api::Client agent(options.host.agent_socket(), api::kAgentsRestart);
  const auto grant = ask_for_slice(agent, *request);
  if (!grant) return report(grant.error(), kExitRunFailed);
  if (const auto joined = join(agent, grant->slice); !joined) {
    static_cast<void>(agent.release({}, grant->slice, true));
    return report(joined.error(), kExitRunFailed);
  }
  // From here on the slice ends when this process ends.
  const auto plan = mountns::plan_for(*grant, ::geteuid() != 0);
  if (const auto entered = mountns::enter(plan); !entered) return report(entered.error(), kExitRunFailed);
  become(options.command);
}

}  // namespace carve::cmd
