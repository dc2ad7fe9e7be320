#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "codec/dialects/dialect.h"
#include "codec/quantity.h"

namespace carve::codec {
namespace {

constexpr std::array<std::string_view, 3> kNative = {"elasticgpu.io/gpu-memory",
                                                     "elasticgpu.io/gpu-core", "elasticgpu.io/gpu"};
constexpr std::array<std::string_view, 1> kGpushare = {"aliyun.com/gpu-mem"};
constexpr std::array<std::string_view, 1> kGpushareCounts = {"aliyun.com/gpu-count"};
constexpr std::array<std::string_view, 1> kNvidia = {"nvidia.com/gpu"};

// What the gpushare extender writes when it binds, and what its inspect tools read.
constexpr std::array<std::string_view, 6> kGpushareShown = {
    "ALIYUN_COM_GPU_MEM_IDX",         "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_POD",         "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "scheduler.framework.gpushare.allocation"};

constexpr std::array<Dialect, 3> kDialects = {{
    {"native", kNative, {}, read_native, nullptr, nullptr},
    {"gpushare", kGpushare, kGpushareShown, read_gpushare, show_gpushare, environment_of_gpushare,
     true, kGpushareCounts},
    {"nvidia", kNvidia, {}, read_nvidia, nullptr, nullptr},
}};

constexpr std::string_view kShareAnnotation = "elasticgpu.io/share-class";
constexpr std::string_view kPriorityAnnotation = "elasticgpu.io/priority-class";

/// True for equal amounts with different spellings, such as 4096 and 4Ki; the API server keeps both.
bool same_amount(const std::string& a, const std::string& b) {
  if (a == b) return true;
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  const auto x = parse_amount("", a, 0, kMost, "");
  const auto y = parse_amount("", b, 0, kMost, "");
  return x && y && *x == *y;
}

/// The value of a resource name, which must be set as the API server requires it for extended resources: in limits, and
/// with an equal value in requests, if any. nullopt: not set.
std::optional<std::string> value_of(const ContainerAsk& container, std::string_view name,
                                    std::vector<Error>* errors) {
  const std::string key(name);
  const auto limit = container.limits.find(key);
  const auto request = container.requests.find(key);
  if (limit == container.limits.end()) {
    if (request == container.requests.end()) return std::nullopt;
    errors->push_back(
        {Code::kInvalidArgument,
         fmt::format(
             "{}: \"{}\" is set only in requests; set it in limits (requests may repeat it)",
             name, request->second.substr(0, 64))});
    return std::nullopt;
  }
  if (request != container.requests.end() && !same_amount(request->second, limit->second)) {
    errors->push_back(
        {Code::kInvalidArgument,
         fmt::format("{}: requests has \"{}\", limits has \"{}\"; they must be equal", name,
                     request->second.substr(0, 64), limit->second.substr(0, 64))});
    return std::nullopt;
  }
  return limit->second;
}

/// Zero for all names equals no request: charts set it as a default.
bool asks(const std::map<std::string_view, std::string>& values) {
  for (const auto& [name, value] : values) {
    if (value != "0") return true;
  }
  return false;
}

/// Applies the tenant's preferences, which are the same for all containers.
void prefer(const PodAsk& pod, Request* request, std::vector<Error>* errors) {
  if (const auto share = pod.annotations.find(std::string(kShareAnnotation));
      share != pod.annotations.end()) {
    const auto read = share_class_from(share->second);
    if (!read) {
      errors->push_back({Code::kInvalidArgument,
                         fmt::format("{}: \"{}\" is not a class; legal: {}", kShareAnnotation,
                                     share->second.substr(0, 64), kShareClassWords)});
    } else if (!request->whole) {
      request->share = *read;
    }
  }
  if (const auto first = pod.annotations.find(std::string(kPriorityAnnotation));
      first != pod.annotations.end()) {
    const auto read = priority_class_from(first->second);
    if (read) {
      request->priority = *read;
    } else {
      errors->push_back({Code::kInvalidArgument,
                         fmt::format("{}: \"{}\" is not a class; legal: {}", kPriorityAnnotation,
                                     first->second.substr(0, 64), kPriorityClassWords)});
    }
  }
}

/// A container's request, and whether it must share its cards with the others.
struct ContainerRequest {
  Request request;
  bool together = false;
};

/// Reads one container; nullopt: it requests nothing from Carve.
std::optional<ContainerRequest> read_container(const ContainerAsk& container, const PodAsk& pod,
                                               const DialectSettings& settings, std::vector<Error>* errors) {
  std::optional<ContainerRequest> found;
  const Dialect* used = nullptr;
  for (const Dialect& dialect : kDialects) {
    if (dialect.read == read_nvidia && !settings.nvidia_by_slots) continue;
    std::map<std::string_view, std::string> values;
    for (const std::string_view name : dialect.resources) {
      if (auto value = value_of(container, name, errors)) values[name] = std::move(*value);
    }
    if (!asks(values)) continue;
    if (used != nullptr) {
      errors->push_back({Code::kInvalidArgument,
                         fmt::format("{} together with {}: one container must use one dialect",
                                     dialect.resources.front(), used->resources.front())});
      continue;
    }
    used = &dialect;
    auto request = dialect.read(Words(std::move(values)), pod, settings);
    if (!request) {
      errors->push_back(request.error());
      continue;
    }
    request->dialect = dialect.name;
    prefer(pod, &*request, errors);
    const std::vector<Error> illegal = validate(*request);
    errors->insert(errors->end(), illegal.begin(), illegal.end());
    found = ContainerRequest{std::move(*request), dialect.together};
  }
  return found;
}

}  // namespace

bool carries_slots(const PodAsk& pod) {
  return std::any_of(pod.containers.begin(), pod.containers.end(), [](const ContainerAsk& container) {
    const auto found = container.limits.find(std::string(kSlots));
    return found != container.limits.end() && found->second != "0";
  });
}

const std::string* Words::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::uint64_t> Words::count(std::string_view name, std::uint64_t high,
                                          std::string_view unit, std::vector<Error>* errors) const {
  const std::string* text = find(name);
  if (text == nullptr) return std::nullopt;
  const auto count = parse_amount(name, *text, 1, high, unit);
  if (count) return *count;
  errors->push_back(count.error());
  return std::nullopt;
}

std::span<const Dialect> dialects() { return kDialects; }

const Dialect* dialect_of(std::string_view resource) {
  const auto has = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), resource) != names.end();
  };
  const auto* const found = std::find_if(kDialects.begin(), kDialects.end(), [&](const Dialect& dialect) {
    return has(dialect.resources) || has(dialect.counts);
  });
  return found == kDialects.end() ? nullptr : found;
}

Result<std::vector<PartRequest>> requests_of(const PodAsk& pod, const DialectSettings& settings) {
  std::vector<PartRequest> parts;
  std::vector<Error> all;
  for (const ContainerAsk& container : pod.containers) {
    std::vector<Error> errors;
    auto read = read_container(container, pod, settings, &errors);
    for (Error& error : errors) error.what = "container " + container.name + ": " + error.what;
    all.insert(all.end(), errors.begin(), errors.end());
    if (!read || !errors.empty()) continue;
    const Phase phase = container.kind == ContainerKind::kInit ? Phase::kInit : Phase::kRun;
    const std::string group = read->together ? read->request.dialect : "";
    parts.push_back({container.name, phase, std::move(read->request), group});
  }
  CARVE_TRY_VOID(joined(all));
  return parts;
}

Result<std::vector<PartRequest>> requests_by_slots(const PodAsk& pod, const DialectSettings& settings) {
  if (!carries_slots(pod)) return std::vector<PartRequest>();
  return requests_of(pod, settings);
}

}  // namespace carve::codec
