#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "core/model/request.h"

// Text of a user or a manifest → units. `field` is the name that the user wrote ("--memory",
// "elasticgpu.io/gpu-memory"); every error names the field, the value, the unit and what is legal. Pure; no allocation
// on success. The opposite direction is to_human() and to_canonical() of base/units.h.
namespace carve::codec {

/// Bytes with the suffixes of Kubernetes quantities: none, k M G T P E (powers of 1000), Ki Mi Gi Ti Pi Ei (powers of
/// 1024), or an exponent (4e9). Fractions of a byte are rounded up, as in Kubernetes: 1.5Gi.
///   errors  kInvalidArgument: empty, longer than 64 characters, not a number, a sign, an unknown suffix, m
///           (thousandths), more than 18 decimals, zero; kOutOfRange: above 2^64 - 1
///   source  k8s.io/apimachinery api/resource Quantity grammar
[[nodiscard]] Result<Bytes> parse_bytes(std::string_view field, std::string_view text);

/// A request for a card's memory: as parse_bytes(), or a percentage of each card: "50%" (1 to 100).
///   errors  as parse_bytes(); also kInvalidArgument: a number without a unit below 1 MiB (0.1, 4)
[[nodiscard]] Result<MemoryAsk> parse_memory(std::string_view field, std::string_view text);

/// Requested compute: 1..100 hundredths of each card, or k·100 for k whole cards.
struct CoresAsk {
  CoreShare share;                // of each card; 100 for whole cards
  std::uint32_t whole_cards = 0;  // 0 below 100, else value / 100 (so 1 for "100")
};
/// 1..100, or 200, 300, … up to 100 × kMaxCardsPerRequest. "30%" is accepted for 30.
///   errors  kInvalidArgument: anything else
[[nodiscard]] Result<CoresAsk> parse_cores(std::string_view field, std::string_view text);
/// The same for a number.
[[nodiscard]] Result<CoresAsk> cores_of(std::string_view field, std::uint64_t hundredths);

/// A limit of compute: 1 to 100 hundredths of each card.
[[nodiscard]] Result<CoreShare> parse_core_limit(std::string_view field, std::string_view text);

/// A whole number from `low` to `high`, digits only; `unit` ("cards") is used in the error text.
[[nodiscard]] Result<std::uint64_t> parse_count(std::string_view field, std::string_view text,
                                                std::uint64_t low, std::uint64_t high,
                                                std::string_view unit);

/// The same for a quantity that the API server has rewritten: it writes every quantity with the largest suffix that
/// fits, so 4000 becomes "4k", 4096 stays as written, and 5.5 becomes "5500m".
///   errors  kInvalidArgument: not a whole number, or out of range; the text says the value in `unit`
///   source  k8s.io/apimachinery api/resource Quantity, CanonicalizeBytes
[[nodiscard]] Result<std::uint64_t> parse_amount(std::string_view field, std::string_view text,
                                                 std::uint64_t low, std::uint64_t high,
                                                 std::string_view unit);

}  // namespace carve::codec
