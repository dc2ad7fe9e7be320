#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// A parameter of a path of the read API.
struct ApiParameter {
  std::string_view name;
  std::string_view about;
  bool in_path = false;
};

/// One path of the read API. All are GET.
struct ApiPath {
  std::string_view path;  // "/v1/nodes/{node}"
  std::string_view about;
  std::string_view type = "application/json";
  std::vector<ApiParameter> parameters = {};
};

/// The OpenAPI 3.1 document of these paths.
[[nodiscard]] std::string openapi_json(std::span<const ApiPath> paths);

}  // namespace carve::codec
