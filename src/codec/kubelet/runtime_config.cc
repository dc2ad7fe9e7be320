#include "codec/kubelet/runtime_config.h"

#include "codec/json_read.h"

namespace carve::codec {

namespace json = boost::json;

RuntimeConfig parse_runtime_config(std::string_view text) {
  RuntimeConfig config;
  json::parse_options options;
  options.max_depth = 64;
  json::error_code error;
  const json::value value =
      json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return config;
  for (const auto& dir : json_read::list(value, "cdiSpecDirs")) {
    const auto path = json_read::text_of(&dir);
    if (!path.empty()) config.cdi_dirs.push_back(path);
  }
  const auto* enabled = json_read::at(value, "enableCDI");
  if (enabled == nullptr) return config;
  if (const auto* flag = enabled->if_bool()) {
    config.cdi = *flag;
  } else if (enabled->is_null() && !config.cdi_dirs.empty()) {
    config.cdi = true;
  }
  return config;
}

}  // namespace carve::codec
