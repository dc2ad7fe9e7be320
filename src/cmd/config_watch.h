#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"

namespace carve::cmd {

/// Ends this process in order (SIGTERM to itself) when a file of settings is there, is gone or is different from what
/// it was at the beginning: whoever started it starts it again, with what is set now. A mounted ConfigMap may come
/// after its pod, and changes under it.
///
/// Settings that it could not start with change nothing: it says so and goes on with those it has. Everybody who mounts
/// them would end with it, and nobody would come back.
class ConfigWatch {
 public:
  /// Whether this process can start with that text; nullopt: there is no file.
  using Check = std::function<Result<void>(const std::optional<std::string>& text)>;
  /// Is told of settings that cannot be used, of each text once. May be empty.
  using Tell = std::function<void(const Error& why)>;

  /// Reads the file: to be made before the process reads it. Empty path: nothing is watched. `clock` and `log` outlive
  /// this.
  ConfigWatch(std::string path, Check check, Clock& clock, Log& log);
  /// For a process that has read it already: `first` is what it read; nullopt: there was no file.
  ConfigWatch(std::string path, std::optional<std::string> first, Check check, Clock& clock, Log& log);
  /// Looks each second, until `stop` or until it has ended the process.
  void run(const Tell& tell, const std::stop_token& stop);
  /// Whether this process could start with what it saw last. Safe from any thread.
  [[nodiscard]] bool good() const { return good_; }

 private:
  /// Whether this text is the process's end.
  bool ends_for(const std::optional<std::string>& text, const Tell& tell);

  const std::string path_;
  const Check check_;
  Clock& clock_;
  Log& log_;
  std::optional<std::string> first_;  // what the process began with
  std::optional<std::string> last_;   // what it was when looked at last
  std::atomic<bool> good_ = true;
};

}  // namespace carve::cmd
