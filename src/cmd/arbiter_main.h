#pragma once

#include <memory>

#include "cmd/options.h"
#include "port/pages.h"

namespace carve::cmd {

/// The client of the arbiter's control socket in the runtime folder; it connects at the first call.
[[nodiscard]] std::unique_ptr<Pages> make_pages(const HostOptions& options);

/// carve arbiter: until SIGTERM.
int run_arbiter(const HostOptions& options);

}  // namespace carve::cmd
