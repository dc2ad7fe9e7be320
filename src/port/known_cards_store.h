#pragma once

#include "base/result.h"
#include "core/health/known_cards.h"

namespace carve {

/// Where the agent's memory of its cards lies. One user at a time.
class KnownCardsStore {
 public:
  virtual ~KnownCardsStore() = default;
  ///   errors  kNotFound: nothing was stored; kDataLoss: it cannot be read
  virtual Result<KnownCards> load() = 0;
  /// Durable on return; before it the old one is there.
  virtual Result<void> save(const KnownCards& cards) = 0;
};

}  // namespace carve
