#include "cmd/document.h"

#include "codec/views/yaml.h"

namespace carve::cmd {

bool is_document(const std::string& output) { return output == "json" || output == "yaml"; }

Result<std::string> document(const std::string& json, const std::string& output) {
  return output == "yaml" ? codec::yaml_of_json(json) : Result<std::string>(json + "\n");
}

}  // namespace carve::cmd
