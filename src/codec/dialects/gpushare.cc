#include <fmt/format.h>

#include "codec/dialects/dialect.h"
#include "codec/quantity.h"

// aliyun.com/gpu-mem in the installation's unit, memory alone: compute is what the neighbours
// leave, as it is there. The label aliyun.com/gpu-count spreads the amount over so many cards.
namespace carve::codec {
namespace {

constexpr std::string_view kMemory = "aliyun.com/gpu-mem";
constexpr std::string_view kCount = "aliyun.com/gpu-count";
constexpr Bytes kMostOfACard = Bytes::gib(4096);

}  // namespace

Result<Request> read_gpushare(const Words& words, const PodAsk& pod,
                              const DialectSettings& settings) {
  const bool gib = settings.gpushare_unit == Bytes::gib(1);
  const std::string_view unit = gib ? "GiB" : "MiB";
  std::vector<Error> errors;
  std::uint64_t cards = 1;
  if (const auto label = pod.labels.find(std::string(kCount)); label != pod.labels.end()) {
    const auto read = parse_count(kCount, label->second, 1, kMaxCardsPerRequest, "cards");
    if (!read) errors.push_back(read.error());
    cards = read.value_or(1);
  }
  const std::uint64_t most = kMostOfACard.count() / settings.gpushare_unit.count() * cards;
  const auto amount = words.count(kMemory, most, unit, &errors);
  if (amount && *amount % cards != 0) {
    errors.push_back(
        {Code::kInvalidArgument,
         fmt::format("{}: {} {} cannot be divided among {} cards; legal are multiples of {}",
                     kMemory, *amount, unit, cards, cards)});
  }
  CARVE_TRY_VOID(joined(errors));
  Request request;
  request.count = static_cast<std::uint32_t>(cards);
  request.memory = MemoryAsk::of(settings.gpushare_unit * (*amount / cards));
  request.compute = CoreShare();
  request.share = ShareClass::kBestEffort;
  return request;
}

}  // namespace carve::codec
