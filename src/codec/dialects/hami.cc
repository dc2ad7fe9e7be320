#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codec/dialects/dialect.h"
#include "codec/quantity.h"
#include "codec/trimmed.h"

// HAMi's names: nvidia.com/gpu (number of cards; 1 when it is absent), and of each card nvidia.com/gpumem (MiB) or
// nvidia.com/gpumem-percentage, nvidia.com/gpucores (hundredths; 0: no cap, so compute is what the neighbours leave)
// and nvidia.com/priority. nvidia.com/gpu alone is a whole card in both systems, and NVIDIA's row reads it. The
// policies of nodes and cards (binpack, spread) are in the row.
//   source  Project-HAMi/HAMi pkg/device/nvidia, as of 2.10 (spec: competitor-hami.md)
namespace carve::codec {
namespace {

constexpr std::string_view kGpumem = "nvidia.com/gpumem";
constexpr std::string_view kGpumemPercentage = "nvidia.com/gpumem-percentage";
constexpr std::string_view kGpucores = "nvidia.com/gpucores";
constexpr std::string_view kPriority = "nvidia.com/priority";
constexpr std::string_view kUseModel = "nvidia.com/use-gputype";
constexpr std::string_view kNotModel = "nvidia.com/nouse-gputype";
constexpr std::string_view kUseCard = "nvidia.com/use-gpuuuid";
constexpr std::string_view kNotCard = "nvidia.com/nouse-gpuuuid";
constexpr std::string_view kCardPolicy = "hami.io/gpu-scheduler-policy";

constexpr std::uint64_t kMostGpumem = 1ULL << 22;  // as for elasticgpu.io/gpu-memory: no card has that much

/// The words of a list in an annotation, "A100,H200"; empty words are left out.
std::vector<std::string> listed_in(const PodAsk& pod, std::string_view annotation) {
  const auto found = pod.annotations.find(std::string(annotation));
  if (found == pod.annotations.end()) return {};
  std::vector<std::string> words;
  for (std::string_view rest = found->second; !rest.empty();) {
    if (const auto word = trimmed(next_piece(&rest, ',')); !word.empty()) words.emplace_back(word);
  }
  return words;
}

/// The selectors that HAMi's users write.
void select(const PodAsk& pod, Request* request) {
  std::string& model = request->constraints.model;
  for (const auto& word : listed_in(pod, kUseModel)) model += (model.empty() ? "" : ",") + word;
  for (const auto& word : listed_in(pod, kNotModel)) model += (model.empty() ? "!" : ",!") + word;
  for (const auto& uuid : listed_in(pod, kUseCard)) request->constraints.cards.emplace_back(uuid);
  for (const auto& uuid : listed_in(pod, kNotCard)) request->constraints.not_cards.emplace_back(uuid);
  const auto policies = listed_in(pod, kCardPolicy);
  if (std::find(policies.begin(), policies.end(), "mutex") != policies.end()) request->constraints.exclusive = true;
}

}  // namespace

Result<Request> read_hami(const Words& words, const PodAsk& pod, const DialectSettings&) {
  std::vector<Error> errors;
  // Zero is the same as absent, as in HAMi.
  const auto given = [&](std::string_view name, std::uint64_t high, std::string_view unit) {
    return words.count(name, high, unit, &errors, 0).value_or(0);
  };
  const auto cards = words.count("nvidia.com/gpu", kMaxCardsPerRequest, "cards", &errors).value_or(1);
  const auto mib = given(kGpumem, kMostGpumem, "MiB");
  const auto percent = given(kGpumemPercentage, 100, "% of each card's memory");
  const auto cores = given(kGpucores, 100, "hundredths of each card");
  const auto priority = words.count(kPriority, 1, "(0: high, 1: low)", &errors, 0);
  if (mib != 0 && percent != 0) {
    errors.push_back({Code::kInvalidArgument,
                      fmt::format("{}: {} MiB together with {}: {}; set only one of them", kGpumem,
                                  mib, kGpumemPercentage, percent)});
  }
  CARVE_TRY_VOID(joined(errors));
  Request request;
  const bool all_memory = mib == 0 && (percent == 0 || percent == 100);
  if (all_memory && (cores == 0 || cores == 100)) {
    request = whole_cards(static_cast<std::uint32_t>(cards));
  } else {
    request.count = static_cast<std::uint32_t>(cards);
    if (mib != 0) request.memory = MemoryAsk::of(Bytes::mib(mib));
    if (mib == 0 && percent != 0) request.memory = MemoryAsk::of_percent(static_cast<std::uint32_t>(percent));
    request.compute = CoreShare(static_cast<std::uint32_t>(cores));
    request.share = cores == 0 ? ShareClass::kBestEffort : ShareClass::kBurst;
    request.constraints.exclusive = cores == 100;  // HAMi gives such a card to no other pod
  }
  if (priority == 0U) request.priority = PriorityClass::kOnline;
  select(pod, &request);
  return request;
}

}  // namespace carve::codec
