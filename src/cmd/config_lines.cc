#include "cmd/config_lines.h"

#include <fmt/core.h>

#include <sstream>

namespace carve::cmd {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

Result<void> each_setting(
    const std::string& text, const std::string& source,
    const std::function<Result<void>(const std::string& key, const std::string& value)>& apply) {
  std::istringstream lines(text);
  std::string problems;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const auto equals = line.find('=');
    const std::string key = trimmed(line.substr(0, equals));
    const auto applied = equals == std::string::npos
                             ? Result<void>(fail(Code::kInvalidArgument, "not of the form key = value"))
                             : apply(key, trimmed(line.substr(equals + 1)));
    if (!applied) problems += fmt::format("\n  {}:{}: {}: {}", source, number, key, applied.error().what);
  }
  if (!problems.empty()) return fail(Code::kInvalidArgument, "configuration:" + problems);
  return {};
}

}  // namespace carve::cmd
