#include "codec/extender/extender.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <optional>
#include <utility>

#include "codec/dialects/pod_ask_json.h"
#include "codec/json_memory.h"
#include "codec/json_pieces.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepth = 64;

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

/// The member with this name in any case; null counts as missing.
const json::value* field(const json::value& value, std::string_view key) {
  const auto* object = value.if_object();
  if (object == nullptr) return nullptr;
  for (const auto& entry : *object) {
    if (same_word(std::string_view(entry.key().data(), entry.key().size()), key))
      return entry.value().is_null() ? nullptr : &entry.value();
  }
  return nullptr;
}

/// Reads names, or whole objects when the scheduler is configured for an extender without a node cache.
bool take_nodes(const json::value& value, ExtenderArgs* args) {
  const auto spelled = std::make_shared<std::list<std::string>>();
  args->spelled = spelled;
  if (const auto* names = field(value, "NodeNames"); names != nullptr && names->is_array()) {
    args->names.reserve(names->get_array().size());
    for (const json::value& name : names->get_array())
      args->names.push_back(spelled->emplace_back(json_read::text_of(&name)));
    return true;
  }
  const auto* nodes = field(value, "Nodes");
  const auto* items = nodes == nullptr ? nullptr : field(*nodes, "items");
  if (items == nullptr || !items->is_array()) return false;
  args->cache_capable = false;
  for (const json::value& node : items->get_array()) {
    args->names.push_back(spelled->emplace_back(json_read::text(node, "metadata.name")));
    args->nodes[spelled->back()] = json::serialize(node);
  }
  return true;
}

/// The Pod of a call, and its priority.
Result<PodAsk> take_pod(const json::value& pod, std::int32_t* priority) {
  CARVE_TRY(auto ask, pod_ask_from(pod));
  if (ask.uid.empty()) return fail(Code::kInvalidArgument, "extender call: metadata.uid of the Pod is missing");
  *priority = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(json_read::number(pod, "spec.priority"), INT32_MIN, INT32_MAX));
  return ask;
}

/// The parts of a call in the form that kube-scheduler writes, with names without escapes.
struct CallTexts {
  std::string_view pod;
  bool names_there = false;
  std::vector<std::string_view> names;
};

/// nullopt: the text has another form, or is not a call.
std::optional<CallTexts> call_pieces(std::string_view text) {
  JsonPieces pieces(text);
  CallTexts call;
  const bool whole = pieces.object([&](std::string_view name, JsonPieces::Value value) {
    if (same_word(name, "Pod")) {
      const auto pod = pieces.text(value);
      if (!pod || !call.pod.empty()) return false;  // of two Pods, the document parser decides which one counts
      call.pod = *pod;
      return true;
    }
    if (!same_word(name, "NodeNames")) return true;
    if (std::exchange(call.names_there, true)) return false;
    return pieces.array(value, [&](JsonPieces::Value item) {
      const auto one = pieces.plain_text(item);
      if (!one || one->empty()) return false;
      call.names.push_back(*one);
      return true;
    });
  });
  return whole && call.names_there && !call.pod.empty() ? std::optional(std::move(call)) : std::nullopt;
}

/// Writes a JSON string. Node names and Carve's own reasons need no escapes, so most texts are copied.
void put_text(std::string_view text, std::string* out) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (!plain) {
    *out += json::serialize(json::string_view(text.data(), text.size()));
    return;
  }
  *out += '"';
  *out += text;
  *out += '"';
}

void put_names(const std::vector<std::string_view>& names, std::string* out) {
  *out += '[';
  for (const auto& name : names) {
    if (&name != &names.front()) *out += ',';
    put_text(name, out);
  }
  *out += ']';
}

void put_refused(const std::vector<FilterAnswer::Refused>& refused, std::string* out) {
  *out += '{';
  for (const auto& one : refused) {
    if (&one != &refused.front()) *out += ',';
    put_text(one.first, out);
    *out += ':';
    put_text(one.second, out);
  }
  *out += '}';
}

/// Writes the objects of these nodes as they were received.
void put_nodes(const std::vector<std::string_view>& names,
               const std::map<std::string, std::string, std::less<>>& nodes, std::string* out) {
  *out += R"({"metadata":{},"items":[)";
  bool first = true;
  for (const auto& name : names) {
    const auto node = nodes.find(name);
    if (node == nodes.end()) continue;
    if (!std::exchange(first, false)) *out += ',';
    *out += node->second;
  }
  *out += "]}";
}

}  // namespace

Result<ExtenderArgs> parse_extender_args(std::string_view text) {
  ExtenderArgs args;
  if (auto call = call_pieces(text)) {
    json_read::Memory memory(call->pod);
    CARVE_TRY(const auto pod, json_read::parse_in(memory, call->pod, "extender call", kDepth - 1));
    CARVE_TRY(args.pod, take_pod(pod, &args.priority));
    args.nominated = json_read::text(pod, "status.nominatedNodeName");
    args.names = std::move(call->names);
  } else {
    json_read::Memory memory(text);
    CARVE_TRY(const auto value, json_read::parse_in(memory, text, "extender call", kDepth));
    const auto* pod = field(value, "Pod");
    if (pod == nullptr) return fail(Code::kInvalidArgument, "extender call: Pod is missing");
    CARVE_TRY(args.pod, take_pod(*pod, &args.priority));
    args.nominated = json_read::text(*pod, "status.nominatedNodeName");
    if (!take_nodes(value, &args))
      return fail(Code::kInvalidArgument, "extender call: NodeNames and Nodes are missing");
    if (std::find(args.names.begin(), args.names.end(), "") != args.names.end())
      return fail(Code::kInvalidArgument, "extender call: a node has no name");
  }
  return args;
}

std::string to_json(const FilterAnswer& answer, const ExtenderArgs& args) {
  std::string out;
  out.reserve(256 + 64 * answer.names.size() + 256 * (answer.failed.size() + answer.hopeless.size()));
  if (args.cache_capable) {
    out += R"({"NodeNames":)";
    put_names(answer.names, &out);
    out += R"(,"Nodes":null)";
  } else {
    out += R"({"NodeNames":null,"Nodes":)";
    put_nodes(answer.names, args.nodes, &out);
  }
  out += R"(,"FailedNodes":)";
  put_refused(answer.failed, &out);
  out += R"(,"FailedAndUnresolvableNodes":)";
  put_refused(answer.hopeless, &out);
  out += R"(,"Error":)";
  put_text(answer.error, &out);
  return out + "}";
}

std::string to_json(const std::vector<HostScore>& scores) {
  std::string out = "[";
  out.reserve(2 + 96 * scores.size());
  for (const HostScore& score : scores) {
    out += out.size() == 1 ? R"({"Host":)" : R"(,{"Host":)";
    put_text(score.node, &out);
    out += R"(,"Score":)" + std::to_string(score.score) + "}";
  }
  return out + "]";
}

Result<PreemptionArgs> parse_preemption_args(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "extender call"));
  PreemptionArgs args;
  const auto* pod = field(value, "Pod");
  if (pod == nullptr) return fail(Code::kInvalidArgument, "extender call: Pod is missing");
  CARVE_TRY(args.pod, take_pod(*pod, &args.priority));
  const auto* whole = field(value, "NodeNameToVictims");
  const auto* all = whole != nullptr ? whole : field(value, "NodeNameToMetaVictims");
  if (all == nullptr || !all->is_object())
    return fail(Code::kInvalidArgument, "extender preempt: NodeNameToMetaVictims and NodeNameToVictims are missing");
  for (const auto& [node, proposed] : all->get_object()) {
    auto& victims = args.nodes[std::string(node)];
    if (const auto* count = field(proposed, "NumPDBViolations"); count != nullptr && count->is_int64())
      victims.violations = count->get_int64();
    const auto* pods = field(proposed, "Pods");
    if (pods == nullptr || !pods->is_array()) continue;
    for (const json::value& victim : pods->get_array()) {
      auto uid =
          whole != nullptr ? json_read::text(victim, "metadata.uid") : json_read::text_of(field(victim, "UID"));
      if (uid.empty()) return fail(Code::kInvalidArgument, "extender preempt: a victim has no UID");
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

std::string encode_turned_away(const UnschedulablePodsNote& note) {
  return json::serialize(
      json::object{{"PodUID", note.uid}, {"NodeNames", json::array(note.nodes.begin(), note.nodes.end())}});
}

Result<UnschedulablePodsNote> parse_turned_away(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "turned-away"));
  UnschedulablePodsNote note;
  note.uid = json_read::text(value, "PodUID");
  if (note.uid.empty()) return fail(Code::kInvalidArgument, "turned-away: PodUID is missing");
  for (const auto& name : json_read::list(value, "NodeNames")) note.nodes.push_back(json_read::text_of(&name));
  return note;
}

Result<BindingArgs> parse_binding_args(std::string_view text) {
  json_read::Memory memory(text);
  CARVE_TRY(const auto value, json_read::parse_in(memory, text, "extender call", kDepth));
  BindingArgs args;
  for (const auto& [key, to] : {std::pair<const char*, std::string*>{"PodNamespace", &args.namespace_name},
                                {"PodName", &args.pod},
                                {"PodUID", &args.uid},
                                {"Node", &args.node}}) {
    *to = json_read::text_of(field(value, key));
    if (to->empty())
      return fail(Code::kInvalidArgument, std::string("extender bind: missing ") + key);
  }
  args.wish = json_read::text_of(field(value, "CarveWish"));
  args.why = json_read::text_of(field(value, "CarveWhy"));
  return args;
}

std::string with_wish(std::string_view call, const std::string& wish, const std::string& why) {
  const auto brace = call.find('{');
  if (brace == std::string_view::npos) return std::string(call);
  std::string text(call.substr(0, brace + 1));
  text += R"("CarveWish":)";
  put_text(wish, &text);
  text += R"(,"CarveWhy":)";
  put_text(why, &text);
  text += ',';
  text += call.substr(brace + 1);
  return text;
}

std::string binding_result(const std::string& error) {
  return json::serialize(json::object{{"Error", error}});
}

}  // namespace carve::codec
