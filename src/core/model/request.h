#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/model/card.h"
#include "core/model/classes.h"

namespace carve {

/// A request may touch at most as many cards as one slice folder hands over (abi/hello.h).
inline constexpr std::uint32_t kMaxCardsPerRequest = 16;

/// The least memory that a request in bytes may ask for: the unit in which the dialects and the DRA door count. It is a
/// bound against mistakes; what a driver needs for its first context is 160 to 520 MiB (app/agent/lifecycle.cc).
inline constexpr Bytes kSmallestSlice = Bytes::mib(1);

/// How much of each card's memory is asked for.
class MemoryAsk {
 public:
  static constexpr MemoryAsk of(Bytes bytes) { return MemoryAsk(bytes, 0); }
  static constexpr MemoryAsk of_percent(std::uint32_t percent) {
    return MemoryAsk(Bytes(), percent);
  }
  [[nodiscard]] constexpr bool is_percent() const { return percent_ != 0; }
  [[nodiscard]] constexpr std::uint32_t percent() const { return percent_; }  // 0 when in bytes
  [[nodiscard]] constexpr Bytes bytes() const { return bytes_; }              // 0 when in per cent
  /// What this comes to on a card of that size.
  [[nodiscard]] constexpr Bytes on(Bytes card_memory) const {
    return is_percent() ? card_memory.percent(percent_) : bytes_;
  }
  friend constexpr bool operator==(MemoryAsk, MemoryAsk) = default;

 private:
  constexpr MemoryAsk(Bytes bytes, std::uint32_t percent) : bytes_(bytes), percent_(percent) {}
  Bytes bytes_;
  std::uint32_t percent_;
};

/// Which cards may serve a request. Empty fields do not constrain.
struct Constraints {
  std::string model;          // a word of the model's name, in any case: "h200", "NVIDIA H200"
  std::vector<CardId> cards;  // only these
  bool exclusive = false;     // nobody else on the card; a whole card always is
  friend bool operator==(const Constraints&, const Constraints&) = default;
};

/// What one container (or one `carve run`) asks for, in normal form: every dialect ends here.
/// A whole card is memory 100 % and compute 100, exclusive; make it with whole_cards().
struct Request {
  std::uint32_t count = 1;                        // how many distinct cards, each as follows
  MemoryAsk memory = MemoryAsk::of_percent(100);  // of each card
  CoreShare compute =
      CoreShare::whole();  // of each card; with besteffort a wish, no guarantee; may be 0
  bool whole = false;
  Constraints constraints;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::string dialect = "native";  // whose spelling it came in
  friend bool operator==(const Request&, const Request&) = default;
};

/// One container (or claim request) and what it asks for.
struct PartRequest {
  std::string part;
  Phase phase = Phase::kRun;
  Request request;
  std::string together = {};  // parts of one owner with the same word here stand on the same cards; empty: anywhere
  friend bool operator==(const PartRequest&, const PartRequest&) = default;
};

/// The request for `count` whole cards.
[[nodiscard]] Request whole_cards(std::uint32_t count);

/// Everything that is wrong with the request, not only the first thing; empty when it is legal.
/// Texts name the field, the value, the unit and what is legal. It says nothing about whether it
/// fits anywhere.
[[nodiscard]] std::vector<Error> validate(const Request& request);

/// One Error from many (texts joined by "; ", the first one's code); success from none.
[[nodiscard]] Result<void> joined(const std::vector<Error>& errors);

/// What was asked, for a person: "2 cards × (4 GiB, compute 30, burst)", "1 whole card".
[[nodiscard]] std::string to_human(const Request& request);
/// The same of all parts: "main: 4 GiB, compute 30, burst; side: 1 whole card".
[[nodiscard]] std::string to_human(const std::vector<PartRequest>& parts);

/// True when `name` (a card's model) contains `word`, in any case; an empty word matches all.
[[nodiscard]] bool model_matches(std::string_view name, std::string_view word);

}  // namespace carve
