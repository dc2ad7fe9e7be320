#include "codec/extender/extender.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>

#include "codec/dialects/pod_ask_json.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

/// In any case; null reads as nothing.
const json::value* field(const json::value& value, std::string_view key) {
  const auto* object = value.if_object();
  if (object == nullptr) return nullptr;
  for (const auto& entry : *object) {
    if (same_word(std::string_view(entry.key().data(), entry.key().size()), key))
      return entry.value().is_null() ? nullptr : &entry.value();
  }
  return nullptr;
}

/// Names, or whole objects when the scheduler was told that we keep none ourselves.
bool take_nodes(const json::value& value, ExtenderArgs* args) {
  if (const auto* names = field(value, "NodeNames"); names != nullptr && names->is_array()) {
    for (const json::value& name : names->get_array())
      args->names.push_back(json_read::text_of(&name));
    return true;
  }
  const auto* nodes = field(value, "Nodes");
  const auto* items = nodes == nullptr ? nullptr : field(*nodes, "items");
  if (items == nullptr || !items->is_array()) return false;
  args->cache_capable = false;
  for (const json::value& node : items->get_array()) {
    args->names.push_back(json_read::text(node, "metadata.name"));
    args->nodes[args->names.back()] = json::serialize(node);
  }
  return true;
}

/// The Pod of a call, and its priority.
Result<PodAsk> take_pod(const json::value& value, std::int32_t* priority) {
  const auto* pod = field(value, "Pod");
  if (pod == nullptr) return fail(Code::kInvalidArgument, "extender call: without Pod");
  CARVE_TRY(auto ask, pod_ask_from(*pod));
  if (ask.uid.empty()) return fail(Code::kInvalidArgument, "extender call: Pod without metadata.uid");
  *priority = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(json_read::number(*pod, "spec.priority"), INT32_MIN, INT32_MAX));
  return ask;
}

json::object texts(const std::map<std::string, std::string>& all) {
  json::object object;
  for (const auto& [key, value] : all) object[key] = value;
  return object;
}

}  // namespace

Result<ExtenderArgs> parse_extender_args(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "extender call"));
  ExtenderArgs args;
  CARVE_TRY(args.pod, take_pod(value, &args.priority));
  if (!take_nodes(value, &args))
    return fail(Code::kInvalidArgument, "extender call: neither NodeNames nor Nodes");
  if (std::find(args.names.begin(), args.names.end(), "") != args.names.end())
    return fail(Code::kInvalidArgument, "extender call: a node without a name");
  return args;
}

std::string to_json(const FilterAnswer& answer, const ExtenderArgs& args) {
  json::object out;
  if (args.cache_capable) {
    out["NodeNames"] = json::array(answer.names.begin(), answer.names.end());
    out["Nodes"] = nullptr;
  } else {
    json::array items;
    for (const std::string& name : answer.names) {
      const auto node = args.nodes.find(name);
      if (node != args.nodes.end()) items.push_back(json::parse(node->second));
    }
    out["NodeNames"] = nullptr;
    out["Nodes"] = json::object{{"metadata", json::object{}}, {"items", std::move(items)}};
  }
  out["FailedNodes"] = texts(answer.failed);
  out["FailedAndUnresolvableNodes"] = texts(answer.hopeless);
  out["Error"] = answer.error;
  return json::serialize(out);
}

std::string to_json(const std::vector<HostScore>& scores) {
  json::array out;
  for (const HostScore& score : scores)
    out.push_back(json::object{{"Host", score.node}, {"Score", score.score}});
  return json::serialize(out);
}

Result<PreemptionArgs> parse_preemption_args(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "extender call"));
  PreemptionArgs args;
  CARVE_TRY(args.pod, take_pod(value, &args.priority));
  const auto* whole = field(value, "NodeNameToVictims");
  const auto* all = whole != nullptr ? whole : field(value, "NodeNameToMetaVictims");
  if (all == nullptr || !all->is_object())
    return fail(Code::kInvalidArgument, "extender preempt: neither NodeNameToMetaVictims nor NodeNameToVictims");
  for (const auto& [node, proposed] : all->get_object()) {
    auto& victims = args.nodes[std::string(node)];
    if (const auto* count = field(proposed, "NumPDBViolations"); count != nullptr && count->is_int64())
      victims.violations = count->get_int64();
    const auto* pods = field(proposed, "Pods");
    if (pods == nullptr || !pods->is_array()) continue;
    for (const json::value& pod : pods->get_array()) {
      auto uid = whole != nullptr ? json_read::text(pod, "metadata.uid") : json_read::text_of(field(pod, "UID"));
      if (uid.empty()) return fail(Code::kInvalidArgument, "extender preempt: a victim without a UID");
      victims.uids.push_back(std::move(uid));
    }
  }
  return args;
}

std::string preemption_result(const std::map<std::string, PreemptionArgs::Victims>& nodes) {
  json::object all;
  for (const auto& [node, victims] : nodes) {
    json::array pods;
    for (const auto& uid : victims.uids) pods.push_back(json::object{{"UID", uid}});
    all[node] = json::object{{"Pods", std::move(pods)}, {"NumPDBViolations", victims.violations}};
  }
  return json::serialize(json::object{{"NodeNameToMetaVictims", std::move(all)}});
}

std::string encode_turned_away(const TurnedAwayNote& note) {
  return json::serialize(
      json::object{{"PodUID", note.uid}, {"NodeNames", json::array(note.nodes.begin(), note.nodes.end())}});
}

Result<TurnedAwayNote> parse_turned_away(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "turned-away"));
  TurnedAwayNote note;
  note.uid = json_read::text(value, "PodUID");
  if (note.uid.empty()) return fail(Code::kInvalidArgument, "turned-away: without PodUID");
  for (const auto& name : json_read::list(value, "NodeNames")) note.nodes.push_back(json_read::text_of(&name));
  return note;
}

Result<BindingArgs> parse_binding_args(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "extender call"));
  BindingArgs args;
  for (const auto& [key, to] : {std::pair<const char*, std::string*>{"PodNamespace", &args.space},
                                {"PodName", &args.pod},
                                {"PodUID", &args.uid},
                                {"Node", &args.node}}) {
    *to = json_read::text_of(field(value, key));
    if (to->empty())
      return fail(Code::kInvalidArgument, std::string("extender bind: without ") + key);
  }
  return args;
}

std::string binding_result(const std::string& error) {
  return json::serialize(json::object{{"Error", error}});
}

}  // namespace carve::codec
