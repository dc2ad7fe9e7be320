#include "core/model/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/ascii.h"
#include "core/model/card_rates.h"
#include "core/model/slice.h"

namespace carve {
namespace {

void check_ceiling(const Request& request, std::vector<Error>& errors) {
  const CoreShare ceiling = request.ceiling;
  if (ceiling == CoreShare() || ceiling > CoreShare::whole()) {
    add_invalid(errors, fmt::format("core-limit: {} is not legal; specify 1 to 100 hundredths of each card",
                                    ceiling.hundredths()));
  } else if (ceiling < CoreShare::whole() && (request.whole || request.share == ShareClass::kFixed)) {
    const char* other = request.whole ? "a whole card" : "share class fixed, which has its cores as limit";
    add_invalid(errors,
                fmt::format("core-limit: {} together with {}; remove one of the two", ceiling.hundredths(), other));
  } else if (ceiling < CoreShare::whole() && request.share == ShareClass::kNode) {
    add_invalid(errors, fmt::format("core-limit: {} together with share class node, whose policy sets the limit; state "
                                    "burst or besteffort",
                                    ceiling.hundredths()));
  } else if (ceiling < CoreShare::whole() && request.compute.is_tflops()) {
    add_invalid(errors, fmt::format("core-limit: {} together with {} TFLOPS; request compute in hundredths of a card",
                                    ceiling.hundredths(), request.compute.tflops()));
  } else if (const auto least = request.compute.share().hundredths(); ceiling < CoreShare(least) && least <= 100) {
    add_invalid(errors, fmt::format("core-limit: {} is below the {} hundredths that are requested; specify {} to 100",
                                    ceiling.hundredths(), least, least));
  }
}

void check_amounts(const Request& request, std::vector<Error>& errors) {
  if (request.count < 1 || request.count > kMaxCardsPerRequest) {
    add_invalid(errors, fmt::format("cards: {} is not legal; ask for 1 to {} cards", request.count,
                            kMaxCardsPerRequest));
  }
  if (request.memory.is_percent() ? request.memory.percent() > 100
                                  : request.memory.bytes() == Bytes(0)) {
    add_invalid(errors, request.memory.is_percent()
                    ? fmt::format("memory: {}% of a card is not legal; ask for 1% to 100%",
                                  request.memory.percent())
                    : "memory: 0 bytes is not legal; ask for bytes such as 4Gi, or 1% to 100%");
  }
  if (!request.memory.is_percent() && request.memory.bytes() != Bytes(0) &&
      request.memory.bytes() < kSmallestSlice) {
    add_invalid(errors, fmt::format("memory: {} bytes is not legal; ask for at least {} ({} bytes) of each card",
                                    request.memory.bytes().count(), to_human(kSmallestSlice),
                                    kSmallestSlice.count()));
  }
  if (request.compute.share() > CoreShare::whole()) {
    add_invalid(errors, fmt::format("cores: {} is not legal; ask for 1 to 100 hundredths of each card",
                            request.compute.share().hundredths()));
  }
  if (request.compute.is_none() && request.share != ShareClass::kBestEffort) {
    add_invalid(errors, fmt::format("cores: share class {} guarantees compute; specify 1 to 100 hundredths, "
                            "or use besteffort",
                            to_string(request.share)));
  }
  check_ceiling(request, errors);
}

void check_whole(const Request& request, std::vector<Error>& errors) {
  if (!request.whole) return;
  if (request.memory != MemoryAsk::of_percent(100) || request.compute != ComputeAsk(CoreShare::whole()) ||
      !request.constraints.exclusive) {
    add_invalid(errors, "cards: a whole card takes 100% of its memory and compute 100, and is exclusive");
  }
  if (request.share == ShareClass::kBestEffort) {
    add_invalid(errors,
        "share: besteffort guarantees nothing and a whole card guarantees everything; "
        "request only one of them");
  }
}

void check_constraints(const Request& request, std::vector<Error>& errors) {
  std::set<CardId> seen;
  for (const CardId& card : request.constraints.cards) {
    if (!valid_name(card.str())) {
      add_invalid(errors, "card: a UUID has 1 to 253 letters, digits and . _ : / -");
    } else if (!seen.insert(card).second) {
      add_invalid(errors, fmt::format("card: {} is named twice", card.str()));
    }
  }
  for (const CardId& card : request.constraints.not_cards) {
    if (!valid_name(card.str())) add_invalid(errors, "card: a UUID has 1 to 253 letters, digits and . _ : / -");
  }
  if (!seen.empty() && seen.size() < request.count) {
    add_invalid(errors, fmt::format("card: {} named, but the request is for {} cards; name at least {} or none",
                            seen.size(), request.count, request.count));
  }
  const std::string& model = request.constraints.model;
  if (model.size() > 128 ||
      std::any_of(model.begin(), model.end(), [](char c) { return c < ' ' || c > '~'; })) {
    add_invalid(errors, "model: at most 128 printable ASCII characters are legal");
  }
}

}  // namespace

std::optional<CoreShare> ComputeAsk::on(std::string_view model) const {
  if (!is_tflops()) return share_;
  const auto peak = fp32_peak(model);
  if (!peak) return std::nullopt;
  const std::uint64_t hundredths = (std::uint64_t{tflops_} * 10 * 100 + *peak - 1) / *peak;
  return CoreShare(static_cast<std::uint32_t>(std::min<std::uint64_t>(hundredths, UINT32_MAX)));
}

Request whole_cards(std::uint32_t count) {
  Request request;
  request.count = count;
  request.whole = true;
  request.constraints.exclusive = true;
  return request;
}

Request equal_parts(std::uint32_t count, std::uint32_t parts) {
  if (parts <= 1) return whole_cards(count);
  Request request;
  request.count = count;
  request.memory = MemoryAsk::of_percent(100 / parts);
  request.compute = CoreShare(100 / parts);
  return request;
}

Request part_of(Request request, std::uint32_t part, std::uint32_t parts) {
  if (request.whole || part == parts) return request;
  request.memory = MemoryAsk::of(Bytes(request.memory.bytes().count() / parts * part));
  request.compute = request.compute.is_tflops()
                        ? ComputeAsk::of_tflops(std::max(request.compute.tflops() / parts * part, 1U))
                        : ComputeAsk(CoreShare(request.compute.share().hundredths() / parts * part));
  return request;
}

std::vector<Error> validate(const Request& request) {
  std::vector<Error> errors;
  check_amounts(request, errors);
  check_whole(request, errors);
  check_constraints(request, errors);
  if (!valid_name(request.dialect)) {
    add_invalid(errors, "dialect: 1 to 253 letters, digits and . _ : / - are legal");
  }
  return errors;
}

Result<void> joined(const std::vector<Error>& errors) {
  if (errors.empty()) return {};
  std::string text;
  for (const Error& error : errors) {
    if (!text.empty()) text += "; ";
    text += error.what;
  }
  return fail(errors.front().code, std::move(text));
}

std::string to_human(const ComputeAsk& compute) {
  return compute.is_tflops() ? fmt::format("{} TFLOPS", compute.tflops())
                             : std::to_string(compute.share().hundredths());
}

std::string to_human(const ComputeAsk& compute, CoreShare ceiling) {
  return to_human(compute) + (ceiling == CoreShare::whole() ? "" : fmt::format(" to {}", ceiling.hundredths()));
}

std::string to_human(const Request& request) {
  if (request.whole) {
    return fmt::format("{} whole card{}", request.count, request.count == 1 ? "" : "s");
  }
  const std::string memory = request.memory.is_percent()
                                 ? fmt::format("{}% of the memory", request.memory.percent())
                                 : to_human(request.memory.bytes());
  const bool any = !request.compute.is_none() || request.ceiling != CoreShare::whole();
  const std::string compute = any ? ", compute " + to_human(request.compute, request.ceiling) : "";
  std::string each = fmt::format("{}{}, {}", memory, compute, to_string(request.share));
  if (request.constraints.exclusive) each += ", exclusive";
  if (request.count == 1) return each;
  return fmt::format("{} cards × ({})", request.count, each);
}

std::string to_human(const std::vector<PartRequest>& parts) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : "; ") + part.part + ": " + to_human(part.request);
  return text;
}

bool model_matches(std::string_view name, std::string_view words) {
  const auto contains = [&](std::string_view word) {
    return std::search(name.begin(), name.end(), word.begin(), word.end(),
                       [](char a, char b) { return lower(a) == lower(b); }) != name.end();
  };
  bool chosen = false;
  bool choice = false;
  while (!words.empty()) {
    const auto end = words.find(',');
    const auto word = words.substr(0, end);
    words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
    if (word.empty() || word == "!") continue;
    if (word.front() == '!') {
      if (contains(word.substr(1))) return false;
      continue;
    }
    choice = true;
    chosen = chosen || contains(word);
  }
  return chosen || !choice;
}

}  // namespace carve
