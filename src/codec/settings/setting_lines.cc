#include "codec/settings/setting_lines.h"

#include <fmt/core.h>

#include <sstream>
#include <string_view>

#include "codec/trimmed.h"

namespace carve::codec {

Result<void> each_setting(
    const std::string& text, const std::string& source,
    const std::function<Result<void>(const std::string& key, const std::string& value)>& apply) {
  std::istringstream lines(text);
  std::string problems;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto setting = trimmed(std::string_view(line).substr(0, line.find('#')));
    if (setting.empty()) continue;
    const auto equals = setting.find('=');
    const std::string key(trimmed(setting.substr(0, equals)));
    const auto applied = equals == std::string_view::npos
                             ? Result<void>(fail(Code::kInvalidArgument, "not of the form key = value"))
                             : apply(key, std::string(trimmed(setting.substr(equals + 1))));
    if (!applied) problems += fmt::format("\n  {}:{}: {}: {}", source, number, key, applied.error().what);
  }
  if (!problems.empty()) return fail(Code::kInvalidArgument, "configuration:" + problems);
  return {};
}

}  // namespace carve::codec
