#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "codec/dialects/dialect.h"

// Tencent's qGPU. An ordinary pod requests qgpu-core and qgpu-memory of one card, or whole cards. An online pod
// requests only memory, and its compute goes before that of all others. An offline pod requests qgpu-core-greedy and
// memory, and computes while no other does.
//   source  TKE's documentation (spec: systems.md R7)
namespace carve::codec {
namespace {

constexpr std::string_view kQgpuCore = "tke.cloud.tencent.com/qgpu-core";
constexpr std::string_view kQgpuMemory = "tke.cloud.tencent.com/qgpu-memory";
constexpr std::string_view kQgpuGreedy = "tke.cloud.tencent.com/qgpu-core-greedy";
constexpr std::string_view kAppClass = "tke.cloud.tencent.com/app-class";

void refuse_together(std::string_view name, const std::string& app_class, std::vector<Error>* errors) {
  const std::string with = app_class.empty() ? fmt::format("without annotation {}: offline", kAppClass)
                                             : fmt::format("together with annotation {}: {}", kAppClass, app_class);
  errors->push_back({Code::kInvalidArgument,
                     fmt::format("{} {}; ordinary pods set {} and {}, online pods only {}, offline pods {} and {}",
                                 name, with, kQgpuCore, kQgpuMemory, kQgpuMemory, kQgpuGreedy, kQgpuMemory)});
}

/// The class of the pod: online, offline, or empty for an ordinary one.
std::string app_class_of(const PodAsk& pod, std::vector<Error>* errors) {
  const auto found = pod.annotations.find(std::string(kAppClass));
  if (found == pod.annotations.end() || found->second == "online" || found->second == "offline")
    return found == pod.annotations.end() ? std::string() : found->second;
  errors->push_back(
      {Code::kInvalidArgument, fmt::format("annotation {}: \"{}\" is not a class; legal: online or offline", kAppClass,
                                           found->second.substr(0, 64))});
  return {};
}

}  // namespace

Result<Request> read_qgpu(const Words& words, const PodAsk& pod, const DialectSettings&) {
  std::vector<Error> errors;
  const auto core = words.hundredths(kQgpuCore, 5, true, &errors);
  const auto greedy = words.hundredths(kQgpuGreedy, 1, false, &errors);
  const auto gib = words.count(kQgpuMemory, 4096, "GiB", &errors);
  const std::string app_class = app_class_of(pod, &errors);
  if (core && !app_class.empty()) refuse_together(kQgpuCore, app_class, &errors);
  if (greedy && app_class != "offline") refuse_together(kQgpuGreedy, app_class, &errors);
  if (errors.empty() && !gib && !(core && *core % 100 == 0)) {
    errors.push_back({Code::kInvalidArgument, fmt::format("{} without {}: how much memory is missing; set {} (GiB) too",
                                                          core ? kQgpuCore : kQgpuGreedy, kQgpuMemory, kQgpuMemory)});
  }
  CARVE_TRY_VOID(joined(errors));
  const auto hundredths = static_cast<std::uint32_t>(core.value_or(greedy.value_or(0)));
  if (core && (hundredths > 100 || (hundredths == 100 && !gib))) return whole_cards(hundredths / 100);
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(*gib));
  request.compute = CoreShare(hundredths);
  request.share = ShareClass::kBestEffort;
  if (core && hundredths == 100) {
    request.share = ShareClass::kBurst;
    request.constraints.exclusive = true;
  } else if (core) {
    request.share = ShareClass::kNode;  // the cores are set aside; the node's policy says how they are enforced
  }
  if (app_class == "online") request.priority = PriorityClass::kOnline;
  if (app_class == "offline") request.priority = PriorityClass::kOffline;
  return request;
}

}  // namespace carve::codec
