#include "app/node/departure.h"

namespace carve::node {

std::vector<std::string> Departure::wait(Clock& clock) const {
  const auto begun = clock.now();
  bool quiet = false;
  Clock::Time since = begun;  // of the time without unfinished pods
  for (;;) {
    const bool has_the_word = said();
    auto open = unfinished();
    const auto now = clock.now();
    if (now - begun >= most) return open;
    if (!heeded && open.empty()) return {};
    const bool was_quiet = quiet;
    quiet = open.empty() && (has_the_word || now - begun >= kUnsaid);
    if (quiet && !was_quiet) since = now;
    if (quiet && (!has_the_word || now - since >= kQuiet)) return {};
    clock.sleep_for(kLook, {});
  }
}

}  // namespace carve::node
