#include "cmd/live.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>

namespace carve::cmd {
namespace {

volatile std::sig_atomic_t interrupted = 0;
void on_signal(int) { interrupted = 1; }

}  // namespace

int show_live(const ViewOptions& options, const std::function<Result<std::string>()>& picture) {
  const auto every = parse_duration("--every", options.every);
  if (!every) return report(every.error());
  if (every->count() < 100) {
    return report({Code::kInvalidArgument, "--every: " + options.every + " is below 100ms"});
  }
  const bool live = !options.once && options.output == "text" && ::isatty(STDOUT_FILENO) != 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  if (live) std::printf("\x1b[?1049h\x1b[?25l");
  int code = kExitOk;
  while (interrupted == 0) {
    const auto text = picture();
    if (live) std::printf("\x1b[H\x1b[2J");
    if (!text && !live) {
      code = report(text.error());
      break;
    }
    std::printf("%s", text ? text->c_str() : (text.error().what + "\n").c_str());
    std::fflush(stdout);
    if (options.once) break;
    const timespec pause = {every->count() / 1000, every->count() % 1000 * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  if (live) std::printf("\x1b[?25h\x1b[?1049l");
  return code;
}

}  // namespace carve::cmd
