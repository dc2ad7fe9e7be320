#pragma once

#include <boost/json/value.hpp>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

// For codecs that read a Pod inside of something else.
namespace carve::codec {

/// parse_pod_ask() of what is parsed already; the same errors.
[[nodiscard]] Result<PodAsk> pod_ask_from(const boost::json::value& value);

}  // namespace carve::codec
