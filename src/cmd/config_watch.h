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

/// Ends this process in order (SIGTERM to itself) when a settings file appears, disappears or differs from its content
/// at the start. The process then starts again with the new settings (start_again.h): if its container ended, the
/// kubelet would wait longer before each start. A mounted ConfigMap may appear after its pod has started, and changes
/// while the pod runs.
///
/// Settings with which the process cannot start change nothing: it reports them and keeps the settings that it has.
/// Otherwise all processes that mount the file would end, and none could start again.
class ConfigWatch {
 public:
  /// Whether this process can start with the text; nullopt: there is no file.
  using Check = std::function<Result<void>(const std::optional<std::string>& text)>;
  /// Called for settings that cannot be used, once per text. May be empty.
  using Tell = std::function<void(const Error& why)>;

  /// Reads the file. Construct it before the process reads the file. Empty path: nothing is watched. `clock` and `log`
  /// outlive this object.
  ConfigWatch(std::string path, Check check, Clock& clock, Log& log);
  /// For a process that has read the file already: `first` is what it read; nullopt: there was no file.
  ConfigWatch(std::string path, std::optional<std::string> first, Check check, Clock& clock, Log& log);
  /// Checks once a second, until `stop` or until it has ended the process.
  void run(const Tell& tell, const std::stop_token& stop);
  /// Whether this process could start with the settings that it read last. Safe from any thread.
  [[nodiscard]] bool good() const { return good_; }
  /// Whether this watch has ended the process. Safe from any thread.
  [[nodiscard]] bool changed() const { return changed_; }

 private:
  /// Whether this text ends the process.
  bool ends_for(const std::optional<std::string>& text, const Tell& tell);

  const std::string path_;
  const Check check_;
  Clock& clock_;
  Log& log_;
  std::optional<std::string> first_;  // the text at the start of the process
  std::optional<std::string> last_;   // the text at the last check
  std::atomic<bool> good_ = true;
  std::atomic<bool> changed_ = false;
};

}  // namespace carve::cmd
