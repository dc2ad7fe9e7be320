#include "codec/dialects/run_request.h"

#include <fmt/format.h>

#include <utility>

namespace carve::codec {
namespace {

/// The given arguments, parsed one by one, with the faults of all of them.
struct Parsed {
  Amounts amounts;
  std::optional<ShareClass> share;
  PriorityClass priority = PriorityClass::kStandard;
  std::optional<CoreShare> ceiling;
  std::vector<Error> errors;
};

template <class T>
void keep(std::optional<T>& to, Result<T> from, std::vector<Error>& errors) {
  if (from) {
    to = *from;
  } else {
    errors.push_back(from.error());
  }
}

std::string cut(const std::string& word) { return word.substr(0, 64); }

Parsed parse(const RunWords& words) {
  Parsed out;
  if (words.memory) keep(out.amounts.memory, parse_memory("memory", *words.memory), out.errors);
  if (words.cores) keep(out.amounts.cores, parse_cores("cores", *words.cores), out.errors);
  if (words.cards) {
    const auto count = parse_count("cards", *words.cards, 1, kMaxCardsPerRequest, "cards");
    if (count) {
      out.amounts.cards = static_cast<std::uint32_t>(*count);
    } else {
      out.errors.push_back(count.error());
    }
  }
  if (words.core_limit) keep(out.ceiling, parse_core_limit("core-limit", *words.core_limit), out.errors);
  if (words.share) {
    out.share = share_class_from(*words.share);
    if (!out.share || out.share == ShareClass::kNode) {
      out.share.reset();
      out.errors.push_back(
          {Code::kInvalidArgument, fmt::format("share: \"{}\" is not a class; legal: {}",
                                               cut(*words.share), kLocalShareClassWords)});
    }
  }
  if (words.priority) {
    const auto priority = priority_class_from(*words.priority);
    if (!priority) {
      out.errors.push_back(
          {Code::kInvalidArgument, fmt::format("priority: \"{}\" is not a class; legal: {}",
                                               cut(*words.priority), kPriorityClassWords)});
    }
    out.priority = priority.value_or(PriorityClass::kStandard);
  }
  return out;
}

Error besteffort_of_a_whole_card() {
  return {Code::kInvalidArgument,
          "share: besteffort guarantees nothing, a whole card everything; specify memory too"};
}

}  // namespace

Result<Request> request_from(const Amounts& amounts) {
  const bool many = amounts.cores && amounts.cores->whole_cards > 1;
  if (many && (amounts.memory || amounts.cards)) {
    return fail(Code::kInvalidArgument,
                fmt::format("cores: {} is {} whole cards and cannot be combined with memory or cards; "
                            "legal with these: 1 to 100 hundredths of each card",
                            amounts.cores->whole_cards * 100, amounts.cores->whole_cards));
  }
  if (!amounts.memory && !amounts.cores && !amounts.cards) {
    return fail(Code::kInvalidArgument,
                "nothing is requested: specify memory (4Gi, 50%), cores (1 to 100) or cards (1 to 16)");
  }
  if (!amounts.memory && (!amounts.cores || amounts.cores->share == CoreShare::whole()))
    return whole_cards(many ? amounts.cores->whole_cards : amounts.cards.value_or(1));
  Request request;
  request.count = amounts.cards.value_or(1);
  if (amounts.cores) {
    request.compute = amounts.cores->share;
    request.memory = amounts.memory.value_or(MemoryAsk::of_percent(amounts.cores->share.hundredths()));
  } else {
    request.compute = CoreShare();
    request.memory = *amounts.memory;
    request.share = ShareClass::kBestEffort;
  }
  return request;
}

Result<Request> request_from(const RunWords& words) {
  Parsed parsed = parse(words);
  std::optional<Request> request;
  if (parsed.errors.empty()) keep(request, request_from(parsed.amounts), parsed.errors);
  if (request && request->whole && parsed.share == ShareClass::kBestEffort) {
    parsed.errors.push_back(besteffort_of_a_whole_card());
    request.reset();
  }
  // The constraints are checked even when the amounts are illegal, so that all errors are reported at once.
  Request checked = request.value_or(whole_cards(1));
  if (parsed.share && request) checked.share = *parsed.share;
  checked.priority = parsed.priority;
  checked.ceiling = parsed.ceiling.value_or(CoreShare::whole());
  checked.constraints.model = words.model.value_or("");
  checked.constraints.exclusive = checked.constraints.exclusive || words.exclusive;
  for (const std::string& uuid : words.card) checked.constraints.cards.emplace_back(uuid);
  const std::vector<Error> illegal = validate(checked);
  parsed.errors.insert(parsed.errors.end(), illegal.begin(), illegal.end());
  CARVE_TRY_VOID(joined(parsed.errors));
  return checked;
}

}  // namespace carve::codec
