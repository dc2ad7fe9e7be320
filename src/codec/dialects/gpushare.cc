#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codec/dialects/projection.h"
#include "codec/quantity.h"

// aliyun.com/gpu-mem in the installation's unit, memory only: compute is what the neighbours leave, as with gpushare
// itself. The label aliyun.com/gpu-count spreads the amount over that number of cards.
namespace carve::codec {
namespace {

constexpr std::string_view kMemory = "aliyun.com/gpu-mem";
constexpr std::string_view kCount = "aliyun.com/gpu-count";
constexpr Bytes kMostOfACard = Bytes::gib(4096);

/// cGPU adds compute to the same names, and its readers find the same on a pod.
bool is_gpushare(const RecordPart& part) { return part.dialect == "gpushare" || part.dialect == "cgpu"; }

/// The sums of the pod's gpushare parts on its cards, in the order of the record, in the dialect's unit.
struct Totals {
  std::vector<const CountedCard*> cards;
  std::uint64_t pod = 0;
};

/// On each card the larger of the largest init container and the sum of the others, as in the ledger.
Totals totals_of(const Shown& shown) {
  Totals totals;
  const Bytes unit = shown.settings.gpushare_unit;
  for (const CountedCard& card : shown.cards) {
    Bytes sum;
    Bytes init;
    bool here = false;
    for (const RecordPart& part : shown.record.parts) {
      if (!is_gpushare(part)) continue;
      for (const RecordCard& held : part.cards) {
        if (held.card != card.id) continue;
        here = true;
        if (part.phase == Phase::kInit) {
          init = std::max(init, held.memory);
        } else {
          sum = sum + held.memory;
        }
      }
    }
    if (!here) continue;
    totals.cards.push_back(&card);
    totals.pod += std::max(init, sum).count() / unit.count();
  }
  return totals;
}

/// {"<container>":{"<card>":<amount>}}, by the indexes of both, as gpushare's newer tools read it. Amounts of 0 are
/// left out.
template <class Amount>
std::string allocation_of(const Shown& shown, Amount amount) {
  std::string out;
  for (std::size_t i = 0; i < shown.containers.size(); ++i) {
    for (const RecordPart& part : shown.record.parts) {
      if (part.part != shown.containers[i] || !is_gpushare(part)) continue;
      std::string cards;
      for (const RecordCard& held : part.cards) {
        const CountedCard* card = counted(shown, held.card);
        if (card == nullptr || card->index < 0 || amount(held) == 0) continue;
        cards += fmt::format("{}\"{}\":{}", cards.empty() ? "" : ",", card->index, amount(held));
      }
      if (!cards.empty()) out += fmt::format("{}\"{}\":{{{}}}", out.empty() ? "" : ",", i, cards);
    }
  }
  return out.empty() ? out : "{" + out + "}";
}

/// Writes index, size and share of a single card, or what can be written for several.
void put_common(const Shown& shown, const Totals& totals, Texts* texts) {
  const CountedCard& first = *totals.cards.front();
  // Readers expect a single number, which does not exist for several cards.
  if (totals.cards.size() == 1 && first.index >= 0)
    (*texts)["ALIYUN_COM_GPU_MEM_IDX"] = std::to_string(first.index);
  (*texts)["ALIYUN_COM_GPU_MEM_DEV"] =
      std::to_string(first.memory.count() / shown.settings.gpushare_unit.count());
  (*texts)["ALIYUN_COM_GPU_MEM_POD"] = std::to_string(totals.pod);
}

}  // namespace

/// ASSIGNED is true from the start: the decision is final with the Binding, and no plugin needs to find the pod by its
/// size.
Texts show_gpushare(const Shown& shown) {
  Texts texts;
  const Totals totals = totals_of(shown);
  if (totals.cards.empty()) return texts;
  put_common(shown, totals, &texts);
  texts["ALIYUN_COM_GPU_MEM_ASSIGNED"] = "true";
  texts["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] = std::to_string(shown.now);
  const auto units = [&](const RecordCard& held) { return held.memory.count() / shown.settings.gpushare_unit.count(); };
  if (auto allocation = allocation_of(shown, units); !allocation.empty()) {
    texts["scheduler.framework.gpushare.allocation"] = std::move(allocation);
  }
  return texts;
}

/// Plain whole numbers in one unit: programs compute CONTAINER / DEV. The card's UUID is in
/// ALIYUN_COM_GPU_VISIBLE_DEVICES, because another runtime would act on NVIDIA_VISIBLE_DEVICES.
Texts environment_of_gpushare(const Shown& shown, const RecordPart& part) {
  Texts texts;
  const Totals totals = totals_of(shown);
  if (totals.cards.empty()) return texts;
  put_common(shown, totals, &texts);
  std::uint64_t own = 0;
  std::string visible;
  for (const RecordCard& held : part.cards) {
    own += held.memory.count() / shown.settings.gpushare_unit.count();
    visible += (visible.empty() ? "" : ",") + held.card.str();
  }
  texts["ALIYUN_COM_GPU_MEM_CONTAINER"] = std::to_string(own);
  texts["ALIYUN_COM_GPU_VISIBLE_DEVICES"] = visible;
  return texts;
}

/// In addition cGPU's later annotations.
Texts show_cgpu(const Shown& shown) {
  Texts texts = show_gpushare(shown);
  if (texts.empty()) return texts;
  texts["scheduler.framework.gpushare.assigned"] = "true";
  texts["scheduler.framework.gpushare.assume-time"] = std::to_string(shown.now);
  const auto hundredths = [](const RecordCard& held) { return held.compute.hundredths(); };
  if (auto cores = allocation_of(shown, hundredths); !cores.empty()) {
    texts["gpushare.alibabacloud.com/core-percentage"] = std::move(cores);
  }
  return texts;
}

/// The weight is the percentage in steps of 5.
Texts environment_of_cgpu(const Shown& shown, const RecordPart& part) {
  Texts texts = environment_of_gpushare(shown, part);
  if (texts.empty()) return texts;
  texts["ALIYUN_COM_GPU_MEM_UNIT"] = shown.settings.gpushare_unit == Bytes::gib(1) ? "GiB" : "MiB";
  const std::uint32_t weight = part.cards.front().compute.hundredths() / 5;
  if (weight != 0) texts["ALIYUN_COM_GPU_SCHD_WEIGHT"] = std::to_string(weight);
  return texts;
}

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
  if (!amount && !errors.empty())
    errors.back().what += fmt::format(
        "; the unit of this cluster is {}: dialects.gpushare-unit in ConfigMap "
        "carve-cluster, GiB or MiB",
        unit);
  if (amount && *amount % cards != 0) {
    errors.push_back(
        {Code::kInvalidArgument,
         fmt::format("{}: {} {} cannot be divided among {} cards; legal: multiples of {}",
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
