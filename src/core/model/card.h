#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "core/model/card_mode.h"

namespace carve {

/// The identity of a card: its UUID as the vendor's library spells it ("GPU-8f0c…"). Never an index: indexes may change
/// at the next boot.
class CardId {
 public:
  CardId() = default;
  explicit CardId(std::string uuid) : uuid_(std::move(uuid)) {}
  [[nodiscard]] const std::string& str() const { return uuid_; }
  [[nodiscard]] bool empty() const { return uuid_.empty(); }
  friend auto operator<=>(const CardId&, const CardId&) = default;

 private:
  std::string uuid_;
};

/// A card's health as its provider last reported it. `reason` is readable text ("XID 79: fallen off the bus"), empty
/// while healthy. A card can recover without a restart.
struct Health {
  bool ok = true;
  std::string reason;
  friend bool operator==(const Health&, const Health&) = default;
};

/// One physical card. Plain data. Its use is in the ledger and its links are in the LinkMatrix, by the same CardId.
struct Card {
  CardId id;
  std::string vendor;  // "nvidia": the provider's name; no code in core branches on it
  std::string model;   // as the driver prints it
  Bytes memory;        // the total that the driver reports
  CoreShare compute = CoreShare::whole();  // always 100
  Health health;
  int numa_node = -1;     // -1: unknown
  int minor = -1;         // of the device node, for adapters; -1: unknown
  std::string pcie_root;  // "0000:17" or empty
  std::string architecture;        // "Hopper" or empty: the vendor's name of the generation
  std::string compute_capability;  // "9.0" or empty
  CardMode mode = CardMode::kAny;
  std::string closed;  // why the card accepts no new slices, regardless of its health; empty: it accepts them
  friend bool operator==(const Card&, const Card&) = default;
};

}  // namespace carve

template <>
struct std::hash<carve::CardId> {
  std::size_t operator()(const carve::CardId& id) const noexcept {
    return std::hash<std::string>{}(id.str());
  }
};
