#include "cmd/config_watch.h"

#include <unistd.h>

#include <csignal>
#include <utility>

#include "adapter/process/text_file.h"

namespace carve::cmd {
namespace {

constexpr std::chrono::seconds kEvery{1};

}  // namespace

ConfigWatch::ConfigWatch(std::string path, Clock& clock, Log& log) {
  if (path.empty()) return;
  looking_ = std::jthread([path = std::move(path), &clock, &log](const std::stop_token& stop) {
    const auto first = read_text(path).value_or("");
    while (clock.sleep_for(kEvery, stop)) {
      if (read_text(path).value_or("") == first) continue;
      log.warn("the settings are others now: ending, to be started again with them", {{"file", path}});
      ::kill(::getpid(), SIGTERM);
      return;
    }
  });
}

}  // namespace carve::cmd
