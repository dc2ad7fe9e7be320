#include "cmd/live.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace carve::cmd {
namespace {

constexpr std::string_view kOwnScreen = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kScreenBefore = "\x1b[?25h\x1b[?1049l";

volatile std::sig_atomic_t own_screen = 0;

/// Ends the process immediately, even while `picture` waits: it only reads, so nothing is left half done.
void end(int) {
  if (own_screen != 0) static_cast<void>(!::write(STDOUT_FILENO, kScreenBefore.data(), kScreenBefore.size()));
  ::_exit(kExitOk);
}

Result<void> show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return flush_output();
}

sigset_t endings() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

int show_live(const ViewOptions& options, const std::function<Result<std::string>()>& picture) {
  const auto every = parse_duration("--every", options.every);
  if (!every) return report(every.error());
  if (every->count() < 100) {
    return report({Code::kInvalidArgument, "--every: " + options.every + " is below 100ms"});
  }
  const bool live = !options.once && options.output == "text" && ::isatty(STDOUT_FILENO) != 0;
  if (!options.once) {
    own_screen = live ? 1 : 0;
    std::signal(SIGINT, end);
    std::signal(SIGTERM, end);
  }
  if (live) static_cast<void>(show(std::string(kOwnScreen)));
  const sigset_t held = endings();
  for (;;) {
    const auto text = picture();
    if (!text && !live) return report(text.error());
    if (live) {
      static_cast<void>(show("\x1b[H\x1b[2J" + (text ? *text : text.error().what + "\n")));
    } else {
      ::sigprocmask(SIG_BLOCK, &held, nullptr);  // so that a reader gets whole JSON documents
      const auto shown = show(*text);
      ::sigprocmask(SIG_UNBLOCK, &held, nullptr);
      if (!shown) return report(shown.error());
    }
    if (options.once) return kExitOk;
    const timespec pause = {every->count() / 1000, every->count() % 1000 * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace carve::cmd
