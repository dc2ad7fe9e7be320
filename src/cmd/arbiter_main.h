#pragma once

#include <memory>
#include <string>

#include "cmd/options.h"
#include "port/pages.h"

namespace carve::cmd {

/// The client of the arbiter's control socket in the runtime folder; it connects at the first call.
[[nodiscard]] std::unique_ptr<Pages> make_pages(const HostOptions& options);

/// carve arbiter: runs until SIGTERM. `trace`: the prefix of its trace files, one per card; empty: no trace.
int run_arbiter(const HostOptions& options, const std::string& trace);

}  // namespace carve::cmd
