#pragma once

#include "codec/metrics/metrics_text.h"

namespace carve::cmd {

/// Of the calling process, by the names of Prometheus' client libraries: CPU seconds, resident bytes; and which Carve
/// it is.
void write_process(codec::MetricsText* text);

}  // namespace carve::cmd
