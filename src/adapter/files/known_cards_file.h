#pragma once

#include <string>

#include "port/known_cards_store.h"

namespace carve::files {

/// The agent's knowledge of its cards in one small JSON file, which is replaced atomically (codec/health).
class KnownCardsFile final : public KnownCardsStore {
 public:
  explicit KnownCardsFile(std::string path) : path_(std::move(path)) {}
  Result<KnownCards> load() override;
  Result<void> save(const KnownCards& cards) override;

 private:
  std::string path_;
};

}  // namespace carve::files
