#include "codec/node/node_object.h"

#include <cctype>
#include <utility>

#include "codec/json_read.h"
#include "codec/node/card_modes.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
namespace read = json_read;

constexpr std::size_t kLabelMax = 63;
constexpr std::size_t kMessageMax = 2048;

/// The members with a name that contains `part`.
std::map<std::string, std::string> texts_with(const json::value& value, std::string_view path, std::string_view part) {
  std::map<std::string, std::string> texts;
  const auto* found = read::at(value, path);
  const auto* object = found == nullptr ? nullptr : found->if_object();
  if (object == nullptr) return texts;
  for (const auto& [key, text] : *object) {
    const std::string name(key.data(), key.size());
    if (name.find(part) != std::string::npos) texts[name] = read::text_of(&text);
  }
  return texts;
}

json::object changes_of(const NodeChanges& changes) {
  json::object object;
  for (const auto& [key, value] : changes)
    object[key] = value ? json::value(*value) : json::value(nullptr);
  return object;
}

}  // namespace

Result<NodeObject> parse_node_object(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "Node"));
  NodeObject node;
  node.name = read::text(value, "metadata.name");
  if (node.name.empty()) return fail(Code::kInvalidArgument, "Node: metadata.name is missing");
  node.uid = read::text(value, "metadata.uid");
  node.runtime = read::text(value, "status.nodeInfo.containerRuntimeVersion");
  node.labels = texts_with(value, "metadata.labels", kOwnPrefix);
  for (const auto name : {kQgpuPolicy, kAckSchedule, kRancherType})
    node.labels.merge(texts_with(value, "metadata.labels", name));
  node.annotations = texts_with(value, "metadata.annotations", kOwnPrefix);
  node.capacity = texts_with(value, "status.capacity", "/");
  for (const auto& item : read::list(value, "status.conditions")) {
    const auto type = read::text(item, "type");
    node.conditions[type] = {type, read::text(item, "status") == "True", read::text(item, "reason"),
                             read::text(item, "message")};
    node.since[type] = read::text(item, "lastTransitionTime");
  }
  return node;
}

std::string node_labels_patch(const NodeChanges& labels) {
  return json::serialize(json::object{{"metadata", json::object{{"labels", changes_of(labels)}}}});
}

std::string node_annotation_patch(std::string_view key, std::string_view value) {
  return json::serialize(json::object{
      {"metadata",
       json::object{{"annotations", json::object{{json_read::json_text(key), json_read::json_text(value)}}}}}});
}

std::string node_annotations_patch(const NodeChanges& annotations) {
  return json::serialize(json::object{{"metadata", json::object{{"annotations", changes_of(annotations)}}}});
}

std::string node_conditions_removal(const std::vector<std::string>& types) {
  json::array list;
  for (const auto& type : types) list.push_back(json::object{{"type", type}, {"$patch", "delete"}});
  return json::serialize(json::object{{"status", json::object{{"conditions", std::move(list)}}}});
}

std::string node_totals_patch(const NodeChanges& totals) {
  return json::serialize(
      json::object{{"status", json::object{{"capacity", changes_of(totals)},
                                           {"allocatable", changes_of(totals)}}}});
}

std::string node_conditions_patch(const std::vector<NodeCondition>& conditions,
                                  const NodeObject& existing, std::string_view now_rfc3339) {
  json::array list;
  for (const auto& condition : conditions) {
    std::string since(now_rfc3339);
    const auto before = existing.conditions.find(condition.type);
    if (before != existing.conditions.end() && before->second.on == condition.on &&
        !existing.since.at(condition.type).empty())
      since = existing.since.at(condition.type);
    list.push_back(json::object{{"type", condition.type},
                                {"status", condition.on ? "True" : "False"},
                                {"reason", condition.reason},
                                {"message", condition.message.substr(0, kMessageMax)},
                                {"lastHeartbeatTime", json_read::json_text(now_rfc3339)},
                                {"lastTransitionTime", since}});
  }
  return json::serialize(json::object{{"status", json::object{{"conditions", std::move(list)}}}});
}

std::string mapped_name(std::string_view device_class) {
  json::error_code error;
  const json::value value = json::parse(json_read::json_text(device_class), error);
  return error ? std::string() : read::text(value, "spec.extendedResourceName");
}

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain || c == '.' || c == '_') {
      if (plain || !out.empty()) out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
    if (out.size() == kLabelMax) break;
  }
  while (!out.empty() && std::isalnum(static_cast<unsigned char>(out.back())) == 0) out.pop_back();
  return out;
}

}  // namespace carve::codec
