#pragma once

#include <boost/json/value.hpp>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

// For codecs that read a Pod inside another document.
namespace carve::codec {

/// parse_pod_ask() of a parsed document; the same errors.
[[nodiscard]] Result<PodAsk> pod_ask_from(const boost::json::value& value);

}  // namespace carve::codec
