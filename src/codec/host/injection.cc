#include "codec/host/injection.h"

#include <algorithm>
#include <boost/json.hpp>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

Result<void> known_only(const json::object& object, std::initializer_list<std::string_view> names) {
  for (const auto& entry : object) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (std::find(names.begin(), names.end(), key) == names.end())
      return fail(Code::kInvalidArgument,
                  "container device: \"" + std::string(key) + "\" cannot be expressed in this form");
  }
  return {};
}

Result<void> add_edits(const json::value& edits, Injection* injection) {
  const auto* object = edits.if_object();
  if (object == nullptr)
    return fail(Code::kInvalidArgument, "container device: containerEdits is not an object");
  // The hook only extends the loader's cache: without it the loader finds the driver in the usual folders.
  CARVE_TRY_VOID(known_only(*object, {"env", "deviceNodes", "mounts", "hooks"}));
  for (const auto& one : json_read::list(edits, "env"))
    injection->environment.push_back(json_read::text_of(&one));
  for (const auto& node : json_read::list(edits, "deviceNodes")) {
    const std::string from = json_read::text(node, "hostPath");
    const std::string to = json_read::text(node, "path");
    injection->nodes.push_back(from.empty() || from == to ? to : from + ":" + to);
  }
  for (const auto& mount : json_read::list(edits, "mounts")) {
    const auto& options = json_read::list(mount, "options");
    const bool read_only = std::any_of(options.begin(), options.end(), [](const json::value& one) {
      return json_read::text_of(&one) == "ro";
    });
    injection->mounts.push_back(
        {json_read::text(mount, "hostPath"), json_read::text(mount, "containerPath"), read_only});
  }
  return {};
}

bool is_plain(const std::string& text) {
  return !text.empty() && text.find_first_of(",\n\r") == std::string::npos;
}

}  // namespace

Result<Injection> parse_injection(std::string_view cdi_spec) {
  json::error_code error;
  const auto value = json::parse(json::string_view(cdi_spec.data(), cdi_spec.size()), error);
  if (error) return fail(Code::kInvalidArgument, "container device: not JSON: " + error.message());
  const auto& devices = json_read::list(value, "devices");
  if (devices.empty()) return fail(Code::kInvalidArgument, "container device: the file has no device");
  Injection injection;
  if (const auto* common = json_read::member(value, "containerEdits"))
    CARVE_TRY_VOID(add_edits(*common, &injection));
  const auto* edits = json_read::member(devices.front(), "containerEdits");
  if (edits == nullptr)
    return fail(Code::kInvalidArgument, "container device: containerEdits is missing");
  CARVE_TRY_VOID(add_edits(*edits, &injection));
  return injection;
}

Result<std::vector<std::string>> docker_arguments(const Injection& injection) {
  std::vector<std::string> arguments;
  for (const auto& one : injection.environment) arguments.push_back("--env=" + one);
  for (const auto& node : injection.nodes) {
    if (!is_plain(node))
      return fail(Code::kInvalidArgument, "device node \"" + node + "\": the path has a comma or a line break");
    arguments.push_back("--device=" + node);
  }
  for (const auto& mount : injection.mounts) {
    if (!is_plain(mount.from) || !is_plain(mount.to))
      return fail(Code::kInvalidArgument,
                  "mount of \"" + mount.from + "\": the path has a comma or a line break");
    arguments.push_back("--mount=type=bind,source=" + mount.from + ",target=" + mount.to +
                        (mount.read_only ? ",readonly" : ""));
  }
  return arguments;
}

std::vector<std::string> nvidia_environment(const std::vector<std::string>& uuids) {
  std::string cards;
  for (const auto& uuid : uuids) cards += (cards.empty() ? "" : ",") + uuid;
  return {"NVIDIA_VISIBLE_DEVICES=" + cards, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"};
}

}  // namespace carve::codec
