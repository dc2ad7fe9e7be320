#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace carve {

/// A card's name: its UUID as the vendor's library spells it ("GPU-8f0c…"). Never an index: indexes change
/// with the next boot.
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

/// A card's health as its provider last saw it. `reason` is for people ("XID 79: fallen off the bus"), empty
/// while healthy. It heals without a restart.
struct Health {
  bool ok = true;
  std::string reason;
  friend bool operator==(const Health&, const Health&) = default;
};

/// One physical card. Plain data; its use is in the ledger, its links in the LinkMatrix, by the same CardId.
struct Card {
  CardId id;
  std::string vendor;  // "nvidia": the provider's name, nothing branches on it here
  std::string model;   // as the driver prints it
  Bytes memory;        // what the driver reports as total
  CoreShare compute = CoreShare::whole();  // always 100
  Health health;
  int numa_node = -1;     // -1: not known
  int minor = -1;         // of the device node, for adapters; -1: not known
  std::string pcie_root;  // "0000:17" or empty
  std::string architecture;        // "Hopper" or empty: as the vendor names the generation
  std::string compute_capability;  // "9.0" or empty
  std::string closed;  // why nothing new is put there, however healthy it is; empty: it may be
  friend bool operator==(const Card&, const Card&) = default;
};

}  // namespace carve

template <>
struct std::hash<carve::CardId> {
  std::size_t operator()(const carve::CardId& id) const noexcept {
    return std::hash<std::string>{}(id.str());
  }
};
