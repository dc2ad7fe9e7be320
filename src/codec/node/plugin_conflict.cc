#include "codec/node/plugin_conflict.h"

#include <fmt/format.h>

namespace carve::codec {
namespace {

constexpr std::string_view kBefore = "another device plugin serves ";
constexpr std::string_view kAfter = " on this node (";

}  // namespace

std::string conflict_words(std::string_view name, std::size_t devices) {
  if (devices == 0)
    return fmt::format("{}{}{}no device any more; the kubelet forgets it after five minutes)", kBefore, name, kAfter);
  return fmt::format("{}{}{}{} devices)", kBefore, name, kAfter, devices);
}

std::vector<std::string> names_in_conflict(std::string_view message) {
  std::vector<std::string> names;
  for (auto at = message.find(kBefore); at != std::string_view::npos; at = message.find(kBefore, at)) {
    at += kBefore.size();
    const auto end = message.find(kAfter, at);
    if (end == std::string_view::npos) break;
    const auto name = message.substr(at, end - at);
    if (name.find(' ') == std::string_view::npos) names.emplace_back(name);
  }
  return names;
}

}  // namespace carve::codec
