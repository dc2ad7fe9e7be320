#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <utility>

namespace carve {
namespace {

constexpr std::array<std::pair<LogLevel, std::string_view>, 4> kLevels = {
    {{LogLevel::kDebug, "debug"},
     {LogLevel::kInfo, "info"},
     {LogLevel::kWarn, "warn"},
     {LogLevel::kError, "error"}}};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

/// Passes every finished line to a function.
class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(Log::Sink to) : to_(std::move(to)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    spdlog::memory_buf_t line;
    formatter_->format(msg, line);
    to_(std::string_view(line.data(), line.size()));
  }
  void flush_() override {}
  Log::Sink to_;
};

/// One write() per line, so that the lines of several processes on one stderr do not mix. A line that cannot be written
/// is dropped: logging must not stop the program.
void write_stderr(std::string_view line) {
  std::string with_end(line);
  with_end += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, with_end.data(), with_end.size());
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

struct Log::Impl {
  explicit Impl(Sink sink) : logger("carve", std::make_shared<FunctionSink>(std::move(sink))) {
    // The message that reaches spdlog is already JSON from "level" on.
    logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "{\"ts\":\"%Y-%m-%dT%H:%M:%S.%eZ\",%v}", spdlog::pattern_time_type::utc, ""));
    logger.set_level(spdlog::level::info);
  }
  spdlog::logger logger;
};

Log::Log() : Log(Sink(write_stderr)) {}
Log::Log(Sink sink) : impl_(std::make_unique<Impl>(std::move(sink))) {}
Log::~Log() = default;

void Log::set_level(LogLevel level) { impl_->logger.set_level(to_spdlog(level)); }

LogLevel Log::level() const {
  for (const auto& [value, word] : kLevels) {
    if (to_spdlog(value) == impl_->logger.level()) return value;
  }
  return LogLevel::kError;
}

void Log::write(LogLevel level, std::string_view message, Fields fields) {
  if (!impl_->logger.should_log(to_spdlog(level))) return;
  std::string line = "\"level\":\"" + std::string(to_string(level)) + "\",\"msg\":";
  append_json(line, message);
  for (const LogField& field : fields) {
    line += ',';
    append_json(line, field.key);
    line += ':';
    std::visit(AppendValue{line}, field.value);
  }
  impl_->logger.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace carve
