#include "cmd/options.h"

namespace carve::cmd {

const char* const kVersion = CARVE_VERSION;
const char* const kCommit = CARVE_COMMIT;

}  // namespace carve::cmd
