#include "codec/views/openapi.h"

#include <boost/json.hpp>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
using json_read::json_text;

json::object refusal(std::string_view about) {
  return {{"description", json_text(about)},
          {"content", json::object{{"text/plain", json::object{{"schema", json::object{{"type", "string"}}}}}}}};
}

json::object operation(const ApiPath& path) {
  json::array parameters;
  for (const auto& one : path.parameters) {
    parameters.push_back(json::object{{"name", json_text(one.name)},
                                      {"in", one.in_path ? "path" : "query"},
                                      {"required", one.in_path},
                                      {"description", json_text(one.about)},
                                      {"schema", json::object{{"type", "string"}}}});
  }
  const bool text = path.type != "application/json";
  json::object answer{
      {"description", json_text(path.about)},
      {"content", json::object{{json_text(path.type),
                                json::object{{"schema", json::object{{"type", text ? "string" : "object"}}}}}}}};
  return {{"summary", json_text(path.about)},
          {"parameters", std::move(parameters)},
          {"responses", json::object{{"200", std::move(answer)},
                                     {"400", refusal("A parameter is unknown or its value is not legal.")},
                                     {"401", refusal("The token is missing or invalid.")},
                                     {"403", refusal("The bearer of the token may not see this.")},
                                     {"404", refusal("It does not exist.")},
                                     {"503", refusal("The data cannot be read now.")}}}};
}

}  // namespace

std::string openapi_json(std::span<const ApiPath> paths) {
  json::object all;
  for (const auto& path : paths) all[json_text(path.path)] = json::object{{"get", operation(path)}};
  return json::serialize(json::object{
      {"openapi", "3.1.0"},
      {"info", json::object{{"title", "Carve read API"}, {"version", "v1"}}},
      {"security", json::array{json::object{{"token", json::array()}}}},
      {"paths", std::move(all)},
      {"components", json::object{{"securitySchemes",
                                   json::object{{"token", json::object{{"type", "http"}, {"scheme", "bearer"}}}}}}}});
}

}  // namespace carve::codec
