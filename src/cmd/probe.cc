#include <cstdio>

#include "adapter/api/client.h"
#include "cmd/arbiter_main.h"
#include "cmd/options.h"

// carve probe: does a process of this node still answer? For the probes of pods, so it asks for no more than an answer:
// what the process thinks of cards, driver and API server is no reason to start it again.
namespace carve::cmd {
namespace {

/// The agent answers from what its last round saw, and waits for nobody: not for the vendor's library, which may hang
/// for hours, and not for the disk.
Result<void> ask_agent(const HostOptions& host) {
  CARVE_TRY(const auto view, api::Client(host.agent_socket()).view({}));
  static_cast<void>(view);
  return {};
}

/// Its list of slices: made by the thread that serves everything but time itself.
Result<void> ask_arbiter(const HostOptions& host) {
  CARVE_TRY(const auto slices, make_pages(host)->list());
  static_cast<void>(slices);
  return {};
}

}  // namespace

int probe(const ProbeOptions& options) {
  const auto answered = options.what == "agent" ? ask_agent(options.host) : ask_arbiter(options.host);
  if (!answered) return report(answered.error(), kExitFailed);
  std::printf("%s answers\n", options.what.c_str());
  return kExitOk;
}

}  // namespace carve::cmd
