#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "core/model/request.h"

// Text that a person or a manifest wrote → units. `field` is the name that the writer used ("--memory",
// "elasticgpu.io/gpu-memory"); every error names it, the value, the unit and what is legal. Pure, no
// allocation on success. The other direction is to_human() and to_canonical() of base/units.h.
namespace carve::codec {

/// Bytes with the suffixes of Kubernetes quantities: none, k M G T P E (powers of 1000), Ki Mi Gi Ti Pi Ei
/// (powers of 1024), or an exponent (4e9). Fractions of a byte round up, as Kubernetes does: 1.5Gi.
///   errors  kInvalidArgument: empty, longer than 64, no number, a sign, unknown suffix, m (thousandths),
///           more than 18 decimals, zero; kOutOfRange: above 2^64 - 1
///   source  k8s.io/apimachinery api/resource Quantity grammar
[[nodiscard]] Result<Bytes> parse_bytes(std::string_view field, std::string_view text);

/// What may be asked of a card's memory: parse_bytes(), or a share of each card's: "50%" (1 to 100).
///   errors  besides those of parse_bytes(): kInvalidArgument: a number without a unit below 1 MiB (0.1, 4)
[[nodiscard]] Result<MemoryAsk> parse_memory(std::string_view field, std::string_view text);

/// How much compute: 1..100 hundredths of each card, or k·100 for k whole cards.
struct CoresAsk {
  CoreShare share;                // of each card; 100 for whole cards
  std::uint32_t whole_cards = 0;  // 0 below 100, else value / 100 (so 1 for "100")
};
/// 1..100, or 200, 300, … up to 100 × kMaxCardsPerRequest. "30%" is accepted for 30.
///   errors  kInvalidArgument: anything else
[[nodiscard]] Result<CoresAsk> parse_cores(std::string_view field, std::string_view text);

/// A whole number from `low` to `high`, digits only; `unit` ("cards") is for the error text.
[[nodiscard]] Result<std::uint64_t> parse_count(std::string_view field, std::string_view text,
                                                std::uint64_t low, std::uint64_t high,
                                                std::string_view unit);

/// The same in the spellings that a resource name's value has in the API: the API server writes every quantity anew
/// with the largest suffix that fits, so that 4000 comes back as "4k", 4096 as written, and 5.5 as "5500m".
///   errors  kInvalidArgument: no whole number, or out of range; the text says how many of `unit` it would be
///   source  k8s.io/apimachinery api/resource Quantity, CanonicalizeBytes
[[nodiscard]] Result<std::uint64_t> parse_amount(std::string_view field, std::string_view text,
                                                 std::uint64_t low, std::uint64_t high,
                                                 std::string_view unit);

}  // namespace carve::codec
