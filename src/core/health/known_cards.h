#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/health/card_health.h"
#include "core/model/card.h"

namespace carve {

/// A card as the driver last described it. Its health is not included, except for what only a reset ends.
struct KnownCard {
  Card card;
  std::string pci_bus_id;
  std::optional<HeldXid> held;
  friend bool operator==(const KnownCard&, const KnownCard&) = default;
};

/// What an agent remembers of its cards. When the driver does not answer at the start of the agent, the cards and their
/// sizes come from here.
struct KnownCards {
  std::string boot_id;  // of the boot during which it was written: a reboot resets cards
  std::string driver_version;
  std::string cuda_version;
  std::string cuda_file;  // the driver's own files
  std::string nvml_file;
  std::vector<KnownCard> cards;
  friend bool operator==(const KnownCards&, const KnownCards&) = default;
};

}  // namespace carve
