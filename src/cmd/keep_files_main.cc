#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <string>

#include "base/log.h"
#include "cmd/keep_files.h"
#include "cmd/options.h"
#include "cmd/stop_signals.h"

// carve keep-files: copies a mounted Secret to files of the host and keeps them current. A static pod cannot mount a
// Secret, and the cluster's own kube-scheduler is a static pod. The certificate that it presents to control is renewed
// every two months.
namespace carve::cmd {

int run_keep_files(const KeepFilesOptions& options) {
  const auto stop_signals = block_stop_signals();
  Log log;
  const timespec every{std::chrono::seconds(options.every).count(), 0};
  for (std::string reported;;) {
    const auto changed = copy_changed_files(options.from, options.to);
    if (changed && !changed->empty())
      log.info("files written", {{"to", options.to}, {"files", fmt::format("{}", fmt::join(*changed, ", "))}});
    if (!changed && changed.error().what != reported)
      log.error("files cannot be written", {{"error", changed.error().what}});
    reported = changed ? std::string() : changed.error().what;
    if (::sigtimedwait(&stop_signals, nullptr, &every) > 0) return kExitOk;
  }
}

}  // namespace carve::cmd
