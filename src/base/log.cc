#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

namespace carve {
namespace {

constexpr std::array<std::pair<LogLevel, std::string_view>, 4> kLevels = {
    {{LogLevel::kDebug, "debug"},
     {LogLevel::kInfo, "info"},
     {LogLevel::kWarn, "warn"},
     {LogLevel::kError, "error"}}};

/// One write() per line, so that the lines of several processes on one stderr do not mix. A line that cannot be written
/// is dropped: logging must not stop the program.
void write_stderr(std::string line) {
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

/// The length of the UTF-8 character that starts at `at`; 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first <= 0xDF ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : length;
}

/// A line is JSON regardless of the names that tenants choose: bytes that are not UTF-8 become question marks.
void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (length == 0) {
      out += '?';
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  out += '"';
}

struct AppendValue {
  std::string& out;
  void operator()(std::string_view value) const { append_json(out, value); }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { out += fmt::format("{}", value); }
  void operator()(std::uint64_t value) const { out += fmt::format("{}", value); }
  void operator()(double value) const {
    out += std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
  }
};

}  // namespace

std::string_view to_string(LogLevel level) {
  for (const auto& [value, word] : kLevels) {
    if (value == level) return word;
  }
  return "error";
}

std::optional<LogLevel> log_level_from(std::string_view word) {
  for (const auto& [value, candidate] : kLevels) {
    if (candidate == word) return value;
  }
  return std::nullopt;
}

Log::Log() : Log(Sink()) {}
Log::Log(Sink sink) : sink_(std::move(sink)) {}

void Log::write(LogLevel level, std::string_view message, Fields fields) {
  if (level < this->level()) return;
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(now - seconds).count();
  std::string line = fmt::format(R"({{"ts":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","level":"{}","msg":)", fmt::gmtime(seconds),
                                 milliseconds, to_string(level));
  append_json(line, message);
  for (const LogField& field : fields) {
    line += ',';
    append_json(line, field.key);
    line += ':';
    std::visit(AppendValue{line}, field.value);
  }
  line += '}';
  if (!sink_) {
    write_stderr(std::move(line));
    return;
  }
  const MutexLock lock(mutex_);
  sink_(line);
}

}  // namespace carve
