#include <fmt/format.h>

#include <vector>

#include "codec/dialects/dialect.h"

// Alibaba's cGPU: gpushare's names, and aliyun.com/gpu-core.percentage or gpu-core.tflops. This compute is set aside.
// The policy of the node says how it is enforced (core/model/share_policy.h).
//   source  cGPU's documentation (spec: systems.md R6)
namespace carve::codec {
namespace {

constexpr std::string_view kPercentage = "aliyun.com/gpu-core.percentage";
constexpr std::string_view kTflops = "aliyun.com/gpu-core.tflops";

}  // namespace

Result<Request> read_cgpu(const Words& words, const PodAsk& pod, const DialectSettings& settings) {
  std::vector<Error> errors;
  const auto percentage = words.hundredths(kPercentage, 5, false, &errors);
  const auto tflops = words.count(kTflops, kMostTflops, "TFLOPS", &errors);
  const std::string_view said = words.find(kTflops) == nullptr ? kPercentage : kTflops;
  if (words.find(kTflops) != nullptr && words.find(kPercentage) != nullptr)
    add_invalid(errors, fmt::format("{} together with {}: both are compute; use one", kTflops, kPercentage));
  if (words.find("aliyun.com/gpu-mem") == nullptr) {
    errors.push_back({Code::kInvalidArgument, fmt::format("{} without aliyun.com/gpu-mem: how much memory is missing; "
                                                          "set aliyun.com/gpu-mem too",
                                                          said)});
    return tl::unexpected(joined(errors).error());
  }
  auto request = read_gpushare(words, pod, settings);
  if (!request) errors.push_back(request.error());
  if (request && request->count > 1) {
    errors.push_back({Code::kInvalidArgument,
                      fmt::format("{} together with label aliyun.com/gpu-count: {}: compute of several cards cannot be "
                                  "requested in this dialect; remove one of the two",
                                  said, request->count)});
  }
  CARVE_TRY_VOID(joined(errors));
  request->share = ShareClass::kNode;
  request->compute = tflops ? ComputeAsk::of_tflops(static_cast<std::uint32_t>(*tflops))
                            : ComputeAsk(CoreShare(static_cast<std::uint32_t>(*percentage)));
  return request;
}

}  // namespace carve::codec
