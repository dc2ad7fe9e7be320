#pragma once

#include <array>
#include <string_view>

#include "app/dashboard/dashboard_api.h"

namespace carve::cmd {

/// The files of the web page. cmake/embed_web.py writes the definition from web/ and the packages that scripts/web
/// fetched. Empty if they were not fetched before the build.
[[nodiscard]] dashboard::WebFiles web_files();

}  // namespace carve::cmd
