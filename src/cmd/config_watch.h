#pragma once

#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"

namespace carve::cmd {

/// Ends this process in order (SIGTERM to itself) when a file of settings is there, is gone or is different from what
/// it was at the beginning: whoever started it starts it again, with what is set now. A mounted ConfigMap may come
/// after its pod, and changes under it.
class ConfigWatch {
 public:
  /// Empty path: nothing is watched. `clock` and `log` outlive this.
  ConfigWatch(std::string path, Clock& clock, Log& log);

 private:
  std::jthread looking_;
};

}  // namespace carve::cmd
