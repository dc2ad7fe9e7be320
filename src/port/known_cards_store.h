#pragma once

#include "base/result.h"
#include "core/health/known_cards.h"

namespace carve {

/// Stores what the agent knows about its cards. One user at a time.
class KnownCardsStore {
 public:
  virtual ~KnownCardsStore() = default;
  ///   errors  kNotFound: nothing was stored; kDataLoss: the stored data cannot be read
  virtual Result<KnownCards> load() = 0;
  /// Durable on return; until then the previous data is kept.
  virtual Result<void> save(const KnownCards& cards) = 0;
};

}  // namespace carve
