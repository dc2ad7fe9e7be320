#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/testing/decisions.h"
#include "core/model/card.h"
#include "core/model/request.h"

// Cards and pods of decisions on record (base/testing/decisions.h).
namespace carve {

inline Card pseudorandom_card(const std::string& id, Numbers& numbers) {
  constexpr std::array kModels = {"NVIDIA T4", "NVIDIA A100-SXM4-40GB", "NVIDIA H200"};
  Card card;
  card.id = CardId(id);
  card.model = kModels[numbers.below(numbers.one_of(3) ? kModels.size() : 1)];
  card.memory = Bytes::gib(8 + 8 * numbers.below(3));
  card.numa_node = static_cast<int>(numbers.below(2));
  return card;
}

/// Whole cards or fractions, of up to three cards.
inline Request pseudorandom_request(Numbers& numbers) {
  constexpr std::array kShares = {ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBurst, ShareClass::kBestEffort};
  Request request = whole_cards(static_cast<std::uint32_t>(1 + numbers.below(3)));
  if (!numbers.one_of(5)) {
    request = Request{};
    request.count = numbers.one_of(4) ? 2 : 1;
    request.share = kShares[numbers.below(kShares.size())];
    request.memory = numbers.one_of(3) ? MemoryAsk::of_percent(static_cast<std::uint32_t>(1 + numbers.below(60)))
                                       : MemoryAsk::of(Bytes::mib(1 + numbers.below(7'000)));
    const auto cores = static_cast<std::uint32_t>(1 + numbers.below(50));
    request.compute = numbers.one_of(8) ? ComputeAsk::of_tflops(2 * cores) : ComputeAsk(CoreShare(cores));
    request.constraints.exclusive = numbers.one_of(12);
  }
  request.priority = static_cast<PriorityClass>(numbers.below(3));
  if (numbers.one_of(6)) request.constraints.model = "t4";
  return request;
}

/// Up to three containers, some of them init containers, some on the same cards.
inline std::vector<PartRequest> pseudorandom_pod(Numbers& numbers) {
  std::vector<PartRequest> parts;
  const std::uint64_t many = numbers.one_of(3) ? 1 + numbers.below(3) : 1;
  const std::string together = numbers.one_of(6) ? "pair" : "";
  for (std::uint64_t i = 0; i < many; ++i) {
    const Phase phase = i == 0 && many > 1 && numbers.one_of(2) ? Phase::kInit : Phase::kRun;
    const Request request = i > 0 && !together.empty() ? parts[0].request : pseudorandom_request(numbers);
    parts.push_back({"c" + std::to_string(i), phase, request, together});
  }
  return parts;
}

}  // namespace carve
