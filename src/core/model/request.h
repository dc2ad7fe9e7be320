#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/model/card.h"
#include "core/model/classes.h"

namespace carve {

/// A request may have at most as many cards as one slice folder hands over (abi/hello.h).
inline constexpr std::uint32_t kMaxCardsPerRequest = 16;

/// The smallest amount of memory that a request in bytes may have: the unit in which the dialects and the DRA driver
/// count. It is a limit against mistakes; a driver needs 160 to 520 MiB for its first context
/// (app/agent/slice_lifecycle.cc).
inline constexpr Bytes kSmallestSlice = Bytes::mib(1);

/// How much memory of each card is requested.
class MemoryAsk {
 public:
  static constexpr MemoryAsk of(Bytes bytes) { return MemoryAsk(bytes, 0); }
  static constexpr MemoryAsk of_percent(std::uint32_t percent) {
    return MemoryAsk(Bytes(), percent);
  }
  [[nodiscard]] constexpr bool is_percent() const { return percent_ != 0; }
  [[nodiscard]] constexpr std::uint32_t percent() const { return percent_; }  // 0 when in bytes
  [[nodiscard]] constexpr Bytes bytes() const { return bytes_; }              // 0 when in per cent
  /// The amount in bytes on a card of that size.
  [[nodiscard]] constexpr Bytes on(Bytes card_memory) const {
    return is_percent() ? card_memory.percent(percent_) : bytes_;
  }
  friend constexpr bool operator==(MemoryAsk, MemoryAsk) = default;

 private:
  constexpr MemoryAsk(Bytes bytes, std::uint32_t percent) : bytes_(bytes), percent_(percent) {}
  Bytes bytes_;
  std::uint32_t percent_;
};

/// How much compute of each card is requested: a share of the card, or an FP32 rate, which is another share on each
/// model of card.
class ComputeAsk {
 public:
  constexpr ComputeAsk(CoreShare share) : share_(share) {}  // implicit: most requests are shares
  static constexpr ComputeAsk of_tflops(std::uint32_t tflops) {
    ComputeAsk ask{CoreShare()};
    ask.tflops_ = tflops;
    return ask;
  }
  [[nodiscard]] constexpr bool is_tflops() const { return tflops_ != 0; }
  [[nodiscard]] constexpr std::uint32_t tflops() const { return tflops_; }  // 0 when it is a share
  [[nodiscard]] constexpr CoreShare share() const { return share_; }        // 0 when it is a rate
  /// True: nothing is requested.
  [[nodiscard]] constexpr bool is_none() const { return tflops_ == 0 && share_ == CoreShare(); }
  /// The share on a card of that model, rounded up to a hundredth; above 100 if the card is too slow. nullopt: the
  /// rate of the model is unknown (card_rates.h).
  [[nodiscard]] std::optional<CoreShare> on(std::string_view model) const;
  friend constexpr bool operator==(ComputeAsk, ComputeAsk) = default;

 private:
  CoreShare share_;
  std::uint32_t tflops_ = 0;
};

/// A model whose cards a request cannot have now, because a quota is used up (QuotaBook).
struct BarredModel {
  std::string model;  // the complete name
  std::string why;
  friend bool operator==(const BarredModel&, const BarredModel&) = default;
};

/// Which cards may serve a request. Empty fields do not constrain.
struct Constraints {
  std::string model;          // of the model's name: "h200", "NVIDIA H200", "A100,H200", "!T4" (model_matches)
  std::vector<CardId> cards;  // only these; empty: any
  bool exclusive = false;     // no other owner on the card; always true for a whole card
  std::vector<CardId> not_cards = {};  // none of these
  std::vector<BarredModel> barred = {};  // none of these; decided by the allocator, never by the tenant
  friend bool operator==(const Constraints&, const Constraints&) = default;
};

/// What one container (or one `carve run`) requests, in normal form. Every dialect is translated to it. A whole card is
/// memory 100%, compute 100, exclusive; whole_cards() creates such a request.
struct Request {
  std::uint32_t count = 1;                        // number of distinct cards, each as follows
  MemoryAsk memory = MemoryAsk::of_percent(100);  // of each card
  ComputeAsk compute = CoreShare::whole();        // of each card; a wish with besteffort, else a guarantee; may be 0
  bool whole = false;
  Constraints constraints;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::string dialect = "native";  // the dialect of the original spelling
  /// The most compute of each card that the slice gets, on an idle card too. whole(): no limit beyond the share class.
  /// At least `compute`; legal with burst and besteffort, whose compute has no other limit.
  CoreShare ceiling = CoreShare::whole();
  friend bool operator==(const Request&, const Request&) = default;
};

/// One container (or claim request) and its request.
struct PartRequest {
  std::string part;
  Phase phase = Phase::kRun;
  Request request;
  std::string together = {};  // parts of one owner with equal values share the same cards; empty: no constraint
  friend bool operator==(const PartRequest&, const PartRequest&) = default;
};

/// The request for `count` whole cards.
[[nodiscard]] Request whole_cards(std::uint32_t count);

/// The request for one of `parts` equal parts of each of `count` cards. 1 part: whole cards.
[[nodiscard]] Request equal_parts(std::uint32_t count, std::uint32_t parts);

/// All faults of the request, not only the first one; empty when it is legal. The texts name the field, the value, the
/// unit and the legal values. It does not check whether the request fits anywhere.
[[nodiscard]] std::vector<Error> validate(const Request& request);

/// One Error from all of `errors` (their texts joined by "; ", the code of the first); success when there are none.
[[nodiscard]] Result<void> joined(const std::vector<Error>& errors);

/// `part` of `parts` equal parts of the request, on one card; a whole card stays whole.
///   in  a request in bytes
[[nodiscard]] Request part_of(Request request, std::uint32_t part, std::uint32_t parts);

/// "30", "20 TFLOPS".
[[nodiscard]] std::string to_human(const ComputeAsk& compute);
/// "30"; "30 to 60" with a ceiling.
[[nodiscard]] std::string to_human(const ComputeAsk& compute, CoreShare ceiling);
/// The request as readable text: "2 cards × (4 GiB, compute 30, burst)", "1 whole card".
[[nodiscard]] std::string to_human(const Request& request);
/// The same of all parts: "main: 4 GiB, compute 30, burst; side: 1 whole card".
[[nodiscard]] std::string to_human(const std::vector<PartRequest>& parts);

/// Whether a card's model is one of those that `words` allows: words separated by commas, of which `name` must contain
/// one, in any case ("A100,H200"), and none that starts with ! ("!40GB"). Empty words, and no words, match all.
[[nodiscard]] bool model_matches(std::string_view name, std::string_view words);

}  // namespace carve
