#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/mutex.h"

namespace carve {

/// error: an administrator must act; warn: degraded, recovers without help; info: state changed; debug: off in
/// production.
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };
[[nodiscard]] std::string_view to_string(LogLevel level);  // debug, info, warn, error
[[nodiscard]] std::optional<LogLevel> log_level_from(std::string_view word);

/// One key and its value. The value is read only during the call.
struct LogField {
  std::string_view key;
  std::variant<std::string_view, std::int64_t, std::uint64_t, double, bool> value;

  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  template <class T>
  requires std::is_integral_v<T> LogField(std::string_view k, T v) : key(k) {
    if constexpr (std::is_signed_v<T>) {
      value = static_cast<std::int64_t>(v);
    } else {
      value = static_cast<std::uint64_t>(v);
    }
  }
};

/// Writes one JSON line per call: {"ts":…,"level":…,"msg":…,key:value…}. The message is a constant in lower case;
/// variable parts go into fields. The field `hint` tells the administrator how to fix the problem. Log an error where
/// it is handled, not where it is returned. No secrets. Safe from any thread; the level can be changed at any time. It
/// is not a trace: no line per kernel launch or per allocation.
class Log {
 public:
  using Fields = std::initializer_list<LogField>;
  using Sink = std::function<void(std::string_view line)>;

  /// Writes to stderr, each line in one write().
  Log();
  /// Calls `sink` (tests), from one thread at a time, without the line end. Empty: writes to stderr.
  explicit Log(Sink sink);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void debug(std::string_view message, Fields fields = {}) {
    write(LogLevel::kDebug, message, fields);
  }
  void info(std::string_view message, Fields fields = {}) {
    write(LogLevel::kInfo, message, fields);
  }
  void warn(std::string_view message, Fields fields = {}) {
    write(LogLevel::kWarn, message, fields);
  }
  void error(std::string_view message, Fields fields = {}) {
    write(LogLevel::kError, message, fields);
  }

  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  [[nodiscard]] LogLevel level() const { return level_.load(std::memory_order_relaxed); }

 private:
  void write(LogLevel level, std::string_view message, Fields fields);
  std::atomic<LogLevel> level_ = LogLevel::kInfo;
  Mutex mutex_;  // held during a call of the sink; stderr needs no lock, because a line is one write()
  const Sink sink_;
};

}  // namespace carve
