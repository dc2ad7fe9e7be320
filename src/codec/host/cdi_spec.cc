#include "codec/host/cdi_spec.h"

#include <yaml-cpp/yaml.h>

namespace carve::codec {
namespace {

constexpr std::size_t kMostBytes = 1U << 20U;

std::string text_of(const YAML::Node& node) {
  return node && node.IsScalar() ? node.Scalar() : std::string();
}

void add_paths(const YAML::Node& edits, CdiSpec* spec) {
  if (!edits || !edits.IsMap()) return;
  for (const char* list : {"mounts", "deviceNodes", "hooks"}) {
    const auto items = edits[list];
    if (!items || !items.IsSequence()) continue;
    for (const auto& item : items) {
      if (!item.IsMap()) continue;
      // A device node's path is also its host path, unless hostPath is set. A hook's path is a host path.
      auto path = text_of(item["hostPath"]);
      if (path.empty()) path = text_of(item["path"]);
      if (!path.empty()) spec->host_paths.push_back(std::move(path));
    }
  }
}

Result<CdiSpec> read(const YAML::Node& root) {
  if (!root.IsMap()) return fail(Code::kInvalidArgument, "CDI spec: not an object");
  CdiSpec spec{text_of(root["cdiVersion"]), text_of(root["kind"]), {}, {}};
  const auto devices = root["devices"];
  if (spec.kind.empty() || !devices || !devices.IsSequence())
    return fail(Code::kInvalidArgument, "CDI spec: kind or devices are missing");
  add_paths(root["containerEdits"], &spec);
  for (const auto& device : devices) {
    if (!device.IsMap()) continue;
    spec.devices.push_back(text_of(device["name"]));
    add_paths(device["containerEdits"], &spec);
  }
  return spec;
}

}  // namespace

Result<CdiSpec> parse_cdi_spec(std::string_view text) {
  if (text.size() > kMostBytes) return fail(Code::kInvalidArgument, "CDI spec: larger than 1 MiB");
  try {
    return read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    return fail(Code::kInvalidArgument, std::string("CDI spec: ") + error.what());
  }
}

}  // namespace carve::codec
