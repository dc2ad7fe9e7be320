#pragma once

#include "codec/metrics/metrics_text.h"

namespace carve::cmd {

/// Writes metrics of the calling process: CPU seconds and resident bytes, by the names of Prometheus' client libraries,
/// and the build of Carve.
void write_process(codec::MetricsText* text);

}  // namespace carve::cmd
