#include <cstdio>

#include "adapter/api/client.h"
#include "cmd/arbiter_main.h"
#include "cmd/options.h"

// carve probe: checks that a process of this node still answers, for the probes of pods. It checks nothing else: the
// state of the cards, the driver or the API server is no reason to restart the process.
namespace carve::cmd {
namespace {

/// The agent answers from its last round. It waits neither for the vendor's library, which may hang for hours, nor for
/// the disk.
Result<void> ask_agent(const HostOptions& host) {
  CARVE_TRY(const auto view, api::Client(host.agent_socket()).view({}));
  static_cast<void>(view);
  return {};
}

/// The arbiter's list of slices. The thread that answers also serves all other calls, but grants no GPU time.
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
