#include "codec/dialects/pod_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "codec/record.h"

namespace carve::codec {
namespace {

constexpr std::string_view kOurs = "elasticgpu.io/";
// The annotation that the extender of the older elasticgpu.io projects writes when it binds:
// elasticgpu.io/container-NAME = "0,1".
constexpr std::string_view kChosen = "elasticgpu.io/container-";

/// Starts of the names of other systems that share cards.
constexpr std::array<std::string_view, 8> kOfOthers = {
    "aliyun.com/gpu-core.",   "nvidia.com/gpumem", "nvidia.com/gpucores", "tencent.com/vcuda-",
    "tke.cloud.tencent.com/", "volcano.sh/",       "rancher.io/gpu",      "deepomatic.com/"};

}  // namespace

bool only_carve_writes(std::string_view annotation) {
  return annotation == kRecordAnnotation || annotation.starts_with(kChosen) || is_shown(annotation);
}

std::string native_names() { return fmt::format("{}", fmt::join(asked_names(native_dialect()), ", ")); }

std::vector<Error> unknown_names(const ContainerAsk& container) {
  std::vector<Error> errors;
  for (const auto* amounts : {&container.limits, &container.requests}) {
    for (const auto& [name, value] : *amounts) {
      if (!name.starts_with(kOurs) || name == kSlots || owner_of(name) != nullptr) continue;
      if (amounts == &container.requests && container.limits.count(name) != 0) continue;  // reported with the limits
      errors.push_back({Code::kInvalidArgument, fmt::format("container {}: {}: no such resource; valid names are {}",
                                                            container.name, name.substr(0, 64), native_names())});
    }
  }
  return errors;
}

std::vector<Error> unread_names(const ContainerAsk& container, const DialectSettings& settings) {
  std::vector<Error> errors;
  for (const auto& [name, value] : container.limits) {
    const auto is_start = [&name = name](std::string_view start) { return name.starts_with(start); };
    if (value == "0" || std::none_of(kOfOthers.begin(), kOfOthers.end(), is_start)) continue;
    const Dialect* owner = owner_of(name);
    if (owner != nullptr && is_served(*owner, settings)) continue;
    errors.push_back(
        {Code::kInvalidArgument,
         fmt::format("container {}: {}: Carve does not read this name{}; remove it, or request cards with {} "
                     "instead of all these names",
                     container.name, name.substr(0, 64),
                     owner != nullptr ? fmt::format(" unless ConfigMap carve-cluster has {}", owner->setting) : "",
                     native_names())});
  }
  return errors;
}

std::vector<Error> placeholders(const PodAsk& pod) {
  std::vector<Error> errors;
  std::vector<std::string> names;
  for (const auto& container : pod.containers) names.push_back(container.name);
  for (const auto& [key, value] : pod.annotations) {
    const auto at = key.find('<');
    if (!key.starts_with(kOurs) || at == std::string::npos) continue;
    errors.push_back(
        {Code::kInvalidArgument,
         fmt::format("annotation {}: {} is a placeholder; replace it with the name of a container (this pod has {})",
                     key.substr(0, 128), key.substr(at, 64), fmt::join(names, ", "))});
  }
  return errors;
}

}  // namespace carve::codec
