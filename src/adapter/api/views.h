#pragma once

#include <boost/json.hpp>

#include "base/result.h"
#include "port/agent_api.h"

namespace carve::api {

[[nodiscard]] boost::json::value value_of(const AgentView& view);
[[nodiscard]] boost::json::value value_of(const Grant& grant);
[[nodiscard]] Result<AgentView> view_from(const boost::json::value& value);
[[nodiscard]] Result<Grant> grant_from(const boost::json::value& value);

}  // namespace carve::api
