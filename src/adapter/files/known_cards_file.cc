#include "adapter/files/known_cards_file.h"

#include "adapter/process/text_file.h"
#include "codec/health/known_cards_text.h"

namespace carve::files {

Result<KnownCards> KnownCardsFile::load() {
  CARVE_TRY(const auto text, process::read_text(path_));
  return codec::parse_known_cards(text);
}

Result<void> KnownCardsFile::save(const KnownCards& cards) {
  return process::replace_file(path_, codec::encode_known_cards(cards), 0600);
}

}  // namespace carve::files
