#include "adapter/api/messages.h"

#include <array>
#include <boost/json.hpp>
#include <utility>

#include "adapter/api/fields.h"
#include "adapter/api/views.h"
#include "codec/history/history_segment.h"

namespace carve::api {
namespace {

namespace json = boost::json;

constexpr std::array<std::pair<Op, std::string_view>, 5> kOps = {{{Op::kAllocate, "allocate"},
                                                                  {Op::kJoin, "join"},
                                                                  {Op::kRelease, "release"},
                                                                  {Op::kView, "view"},
                                                                  {Op::kHistory, "history"}}};

Result<json::value> parse(std::string_view bytes) {
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = 16;
  auto value = json::parse(json::string_view(bytes.data(), bytes.size()), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, "message: not JSON: " + error.message());
  return value;
}

json::value value_of(const AllocateRequest& a) {
  const Request& r = a.request;
  json::array cards;
  for (const auto& card : r.constraints.cards) cards.emplace_back(card.str());
  json::object object{{"count", r.count},
                      {"compute", r.compute.share().hundredths()},
                      {"whole", r.whole},
                      {"model", r.constraints.model},
                      {"cards", std::move(cards)},
                      {"exclusive", r.constraints.exclusive},
                      {"share", std::string(to_string(r.share))},
                      {"priority", std::string(to_string(r.priority))},
                      {"policy", a.policy},
                      {"keep", a.keep},
                      {"name", a.name}};
  if (r.memory.is_percent()) {
    object["memory_percent"] = r.memory.percent();
  } else {
    object["memory_bytes"] = r.memory.bytes().count();
  }
  if (r.ceiling != CoreShare::whole()) object["ceiling"] = r.ceiling.hundredths();
  if (a.wait) object["wait_ms"] = a.wait->count();
  return object;
}

Result<AllocateRequest> allocate_from(const json::value& value) {
  Fields f(value, "allocate");
  AllocateRequest a;
  Request& r = a.request;
  r.count = static_cast<std::uint32_t>(f.number("count", 1, kMaxCardsPerRequest));
  if (f.has("memory_percent")) {
    r.memory = MemoryAsk::of_percent(static_cast<std::uint32_t>(f.number("memory_percent", 1, 100)));
  } else {
    r.memory = MemoryAsk::of(Bytes(f.number("memory_bytes", 1)));
  }
  r.compute = CoreShare(static_cast<std::uint32_t>(f.number("compute", 0, 100)));
  if (f.has("ceiling")) r.ceiling = CoreShare(static_cast<std::uint32_t>(f.number("ceiling", 1, 100)));
  r.whole = f.flag("whole");
  r.constraints.model = f.text("model", 256);
  for (auto& card : f.texts("cards", kMaxCardsPerRequest * 4))
    r.constraints.cards.emplace_back(std::move(card));
  r.constraints.exclusive = f.flag("exclusive");
  const auto share = share_class_from(f.text("share", 32));
  if (!share || share == ShareClass::kNode) f.wrong("share", "not one of " + std::string(kLocalShareClassWords));
  r.share = share.value_or(ShareClass::kBurst);
  const auto priority = priority_class_from(f.text("priority", 32));
  if (!priority) f.wrong("priority", "not one of " + std::string(kPriorityClassWords));
  r.priority = priority.value_or(PriorityClass::kStandard);
  a.policy = f.text("policy", 64);
  a.keep = f.flag("keep");
  a.name = f.text("name", 256);
  if (f.has("wait_ms")) {
    a.wait = std::chrono::milliseconds(
        static_cast<std::int64_t>(f.number("wait_ms", 0, static_cast<std::uint64_t>(kLongestWait.count()))));
  }
  CARVE_TRY_VOID(f.finish());
  return a;
}

json::value value_of(const HistoryQuery& query) {
  return json::object{{"card", query.card},
                      {"slice", query.slice},
                      {"name", query.name},
                      {"by", std::string(to_string(query.by))},
                      {"since_seconds", query.since.count()},
                      {"points", query.points}};
}

Result<HistoryQuery> history_from(const json::value& value) {
  Fields f(value, "history");
  HistoryQuery query;
  query.card = f.text("card", 128);
  query.slice = f.text("slice", 128);
  query.name = f.text("name", 1024);
  const auto by = history_by_from(f.text("by", 32));
  if (!by) f.wrong("by", "not one of " + std::string(kHistoryByWords));
  query.by = by.value_or(query.by);
  query.since = std::chrono::seconds(static_cast<std::int64_t>(
      f.number("since_seconds", 1, static_cast<std::uint64_t>(std::chrono::seconds(kHistoryLongest).count()))));
  query.points = static_cast<std::uint32_t>(f.number("points", 1, kHistoryMostPoints));
  CARVE_TRY_VOID(f.finish());
  return query;
}

std::string reply_error(const Error& error) {
  return json::serialize(
      json::object{{"ok", false}, {"code", std::string(to_string(error.code))}, {"what", error.what}});
}

Code code_from(std::string_view word) {
  for (std::uint8_t code = 1; code <= 16; ++code) {
    if (to_string(static_cast<Code>(code)) == word) return static_cast<Code>(code);
  }
  return Code::kUnknown;
}

/// The "value" of a successful reply, or the error of a failed one.
Result<json::value> reply_value(std::string_view bytes) {
  CARVE_TRY(const auto value, parse(bytes));
  Fields f(value, "reply");
  if (f.flag("ok")) {
    json::value inner = f.object("value");
    CARVE_TRY_VOID(f.finish());
    return inner;
  }
  const Code code = code_from(f.text("code", 64));
  std::string what = f.text("what", kMaxReplyBytes);
  CARVE_TRY_VOID(f.finish());
  return fail(code, std::move(what));
}

std::string good(json::value value) {
  return json::serialize(json::object{{"ok", true}, {"value", std::move(value)}});
}

void indent(std::string& out, const json::value& value, std::size_t depth) {
  const std::string pad(depth * 2 + 2, ' ');
  if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
    out += "{\n";
    bool first = true;
    for (const auto& member : *object) {
      if (!first) out += ",\n";
      first = false;
      out += pad + json::serialize(member.key()) + ": ";
      indent(out, member.value(), depth + 1);
    }
    out += "\n" + std::string(depth * 2, ' ') + "}";
  } else if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
    out += "[\n";
    bool first = true;
    for (const auto& element : *array) {
      if (!first) out += ",\n";
      first = false;
      out += pad;
      indent(out, element, depth + 1);
    }
    out += "\n" + std::string(depth * 2, ' ') + "]";
  } else {
    out += json::serialize(value);
  }
}

std::string pretty(const json::value& value) {
  std::string out;
  indent(out, value, 0);
  return out;
}

}  // namespace

std::string encode_request(const ApiRequest& request) {
  json::object object{{"v", kVersion}};
  for (const auto& [op, word] : kOps) {
    if (op == request.op) object["op"] = std::string(word);
  }
  if (request.op == Op::kAllocate) object["allocate"] = value_of(request.allocate);
  if (request.op == Op::kJoin || request.op == Op::kRelease) object["slice"] = request.slice;
  if (request.op == Op::kRelease) object["kill"] = request.kill;
  if (request.op == Op::kHistory) object["history"] = value_of(request.history);
  return json::serialize(object);
}

Result<ApiRequest> decode_request(std::string_view bytes) {
  CARVE_TRY(const auto value, parse(bytes));
  Fields f(value, "request");
  const auto version = f.number("v");
  if (f.has("v") && version != kVersion) {
    return fail(Code::kUnimplemented, "request: version " + std::to_string(version) + ", this agent supports version " +
                                          std::to_string(kVersion));
  }
  ApiRequest request;
  const std::string word = f.text("op", 32);
  bool known = false;
  for (const auto& [op, name] : kOps) {
    if (name != word) continue;
    request.op = op;
    known = true;
  }
  if (!known) f.wrong("op", "not one of allocate, join, release, view, history");
  if (known && request.op == Op::kAllocate) {
    CARVE_TRY(request.allocate, allocate_from(f.object("allocate")));
  }
  if (known && (request.op == Op::kJoin || request.op == Op::kRelease)) request.slice = f.text("slice", 128);
  if (known && request.op == Op::kRelease) request.kill = f.flag("kill");
  if (known && request.op == Op::kHistory) {
    CARVE_TRY(request.history, history_from(f.object("history")));
  }
  CARVE_TRY_VOID(f.finish());
  return request;
}

std::string encode_reply(const Result<void>& result) {
  return result ? good(json::object{}) : reply_error(result.error());
}
std::string encode_reply(const Result<Grant>& result) {
  return result ? good(value_of(*result)) : reply_error(result.error());
}
std::string encode_reply(const Result<AgentView>& result) {
  return result ? good(value_of(*result)) : reply_error(result.error());
}

std::string encode_reply(const Result<HistoryAnswer>& result) {
  return result ? "{\"ok\":true,\"value\":" + codec::to_json(*result) + "}" : reply_error(result.error());
}

Result<void> decode_void_reply(std::string_view bytes) {
  CARVE_TRY(const auto value, reply_value(bytes));
  static_cast<void>(value);
  return {};
}
Result<Grant> decode_grant_reply(std::string_view bytes) {
  CARVE_TRY(const auto value, reply_value(bytes));
  return grant_from(value);
}
Result<AgentView> decode_view_reply(std::string_view bytes) {
  CARVE_TRY(const auto value, reply_value(bytes));
  return view_from(value);
}

Result<HistoryAnswer> decode_history_reply(std::string_view bytes) {
  CARVE_TRY(const auto value, reply_value(bytes));
  return codec::parse_history_answer(json::serialize(value));
}

std::string to_json(const AgentView& view) { return pretty(value_of(view)); }
std::string to_json(const Grant& grant) { return pretty(value_of(grant)); }

std::string to_json(const std::vector<NodeView>& nodes) {
  json::array all;
  for (const auto& one : nodes) {
    json::object object{{"node", one.node}};
    if (one.view)
      object["agent"] = value_of(*one.view);
    else
      object["error"] = one.error;
    all.push_back(std::move(object));
  }
  return pretty(json::object{{"nodes", std::move(all)}});
}

std::string public_json(AgentView view) {
  view.events.clear();
  for (auto& card : view.cards) {
    for (auto& process : card.foreign) process.command.clear();
  }
  for (auto& slice : view.slices) slice.processes.clear();
  return json::serialize(value_of(view));
}

Result<AgentView> view_of_json(std::string_view text) {
  CARVE_TRY(const auto value, parse(text));
  return view_from(value);
}

}  // namespace carve::api
