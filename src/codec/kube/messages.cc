#include "codec/kube/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "codec/json_pieces.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepth = JsonPieces::kDepth;
constexpr std::size_t kQuoted = 200;

Result<json::object> parse_object(std::string_view text) {
  boost::system::error_code wrong;
  json::parse_options options;
  options.max_depth = kDepth;
  auto value = json::parse(json::string_view(text.data(), text.size()), wrong, {}, options);
  if (wrong) return fail(Code::kDataLoss, "not JSON: " + wrong.message());
  if (!value.is_object()) return fail(Code::kDataLoss, "expected a JSON object");
  return std::move(value.get_object());
}

std::string text_at(const json::object& object, std::string_view field) {
  const auto* value = object.if_contains(json::string_view(field.data(), field.size()));
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

std::string in_metadata(const json::object& object, std::string_view field) {
  const auto* metadata = object.if_contains("metadata");
  return metadata != nullptr && metadata->is_object() ? text_at(metadata->get_object(), field) : std::string();
}

constexpr std::string_view kManaged = "managedFields";

struct EventTexts {
  std::string_view type;
  std::string_view object;
  std::string_view version;
  std::string_view managed;  // the part of `object` that is left out, with one adjacent comma
};

/// Finds what is needed of an object's metadata.
bool metadata_pieces(JsonPieces& pieces, JsonPieces::Value metadata, EventTexts* event) {
  event->version = event->managed = {};
  const char* last = nullptr;  // the end of the previous member
  std::string_view whole;
  return pieces.object(metadata, &whole, [&](std::string_view name, JsonPieces::Value member) {
    const bool version = name == "resourceVersion";
    const auto text = version ? pieces.plain_text(member) : pieces.text(member);
    if (!text) return false;
    const char* const end = text->data() + text->size() + (version ? 1 : 0);  // with the quote after a plain text
    if (version) event->version = *text;
    if (name == kManaged && last != nullptr) event->managed = {last, static_cast<std::size_t>(end - last)};
    last = end;
    return true;
  });
}

/// The parts of an event, found without building a document; nullopt: it is not an event, or another form.
std::optional<EventTexts> event_pieces(std::string_view line) {
  JsonPieces pieces(line);
  EventTexts event;
  const bool whole = pieces.object([&](std::string_view name, JsonPieces::Value value) {
    if (name == "type") {
      const auto type = pieces.plain_text(value);
      if (type) event.type = *type;
      return type.has_value();
    }
    if (name != "object") return true;
    event.object = event.version = event.managed = {};
    return pieces.object(value, &event.object, [&](std::string_view field, JsonPieces::Value member) {
      return field != "metadata" || metadata_pieces(pieces, member, &event);
    });
  });
  return whole ? std::optional(event) : std::nullopt;
}

/// `text` without `piece`, which must be a part of it.
std::string without(std::string_view text, std::string_view piece) {
  if (piece.empty()) return std::string(text);
  const auto before = static_cast<std::size_t>(piece.data() - text.data());
  std::string out;
  out.reserve(text.size() - piece.size());
  out += text.substr(0, before);
  out += text.substr(before + piece.size());
  return out;
}

bool plain_in_path(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~/:").find(c) != std::string_view::npos;
}

void append_encoded(std::string_view text, std::string* out) {
  for (const char c : text) {
    if (plain_in_path(c) && c != '/' && c != ':') {
      *out += c;
    } else {
      *out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
}

}  // namespace

Result<KubePage> parse_kube_page(std::string_view text) {
  CARVE_TRY(auto list, parse_object(text));
  KubePage page{.items = {},
                .version = in_metadata(list, "resourceVersion"),
                .continues = in_metadata(list, "continue")};
  const auto api = text_at(list, "apiVersion");
  auto kind = text_at(list, "kind");
  if (!kind.ends_with("List")) {
    return fail(Code::kDataLoss, "expected a list, found kind \"" + kind.substr(0, 60) + "\"");
  }
  kind.resize(kind.size() - 4);
  auto* items = list.if_contains("items");
  if (items == nullptr || items->is_null()) return page;
  if (!items->is_array()) return fail(Code::kDataLoss, "items: expected an array");
  page.items.reserve(items->get_array().size());
  for (auto& item : items->get_array()) {
    if (!item.is_object()) return fail(Code::kDataLoss, "items: expected objects");
    auto& object = item.get_object();
    if (!api.empty() && !object.contains("apiVersion")) object["apiVersion"] = api;
    if (!kind.empty() && !object.contains("kind")) object["kind"] = kind;
    page.items.push_back(json::serialize(item));
  }
  return page;
}

Result<KubeEvent> parse_kube_event(std::string_view line) {
  if (const auto event = event_pieces(line); event && !event->object.empty()) {
    const bool deleted = event->type == "DELETED";
    if (deleted || event->type == "ADDED" || event->type == "MODIFIED") {
      KubeEvent found;
      found.kind = deleted ? KubeEvent::Kind::kDeleted : KubeEvent::Kind::kPut;
      found.version = event->version;
      found.object = without(event->object, event->managed);
      return found;
    }
  }
  CARVE_TRY(const auto event, parse_object(line));
  const auto type = text_at(event, "type");
  const auto* inside = event.if_contains("object");
  if (inside == nullptr || !inside->is_object()) return fail(Code::kDataLoss, "object: expected an object");
  const auto& object = inside->get_object();
  KubeEvent found;
  found.version = in_metadata(object, "resourceVersion");
  if (type == "ERROR") {
    const auto* code = object.if_contains("code");
    if (code != nullptr && code->is_int64() && code->get_int64() >= 100 && code->get_int64() < 600) {
      found.status = static_cast<int>(code->get_int64());
    }
    found.message = text_at(object, "message").substr(0, kQuoted);
    return found;
  }
  if (type == "BOOKMARK") {
    found.kind = KubeEvent::Kind::kBookmark;
    return found;
  }
  if (type != "ADDED" && type != "MODIFIED" && type != "DELETED") {
    return fail(Code::kDataLoss,
                "type \"" + type.substr(0, 40) + "\": unknown; legal: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR");
  }
  found.kind = type == "DELETED" ? KubeEvent::Kind::kDeleted : KubeEvent::Kind::kPut;
  found.object = json::serialize(*inside);
  return found;
}

std::string kube_message(std::string_view body) {
  if (const auto status = parse_object(body)) {
    auto message = text_at(*status, "message");
    if (!message.empty()) return message.substr(0, 4 * kQuoted);
  }
  std::string text;
  for (const char c : body.substr(0, kQuoted)) {
    if (c >= ' ' && c < 127) text += c;
  }
  return text;
}

bool kube_has_cause(std::string_view body, std::string_view reason) {
  const auto status = json_read::parse(body, "Status", kDepth);
  if (!status) return false;
  const auto& causes = json_read::list(*status, "details.causes");
  return std::any_of(causes.begin(), causes.end(),
                     [&](const json::value& cause) { return json_read::text(cause, "reason") == reason; });
}

Result<std::string> kube_target(std::string_view path,
                                const std::vector<std::pair<std::string, std::string>>& query) {
  if (!path.starts_with('/') || path.starts_with("//")) {
    return fail(Code::kInvalidArgument, fmt::format("path \"{}\": must be absolute", path.substr(0, kQuoted)));
  }
  for (const char c : path) {
    if (plain_in_path(c)) continue;
    return fail(Code::kInvalidArgument,
                fmt::format("path: character {:#04x} is not legal", static_cast<unsigned char>(c)));
  }
  if (path.find("/../") != std::string_view::npos || path.ends_with("/..")) {
    return fail(Code::kInvalidArgument, "path: \"..\" is not legal");
  }
  std::string target(path);
  char mark = '?';
  for (const auto& [key, value] : query) {
    target += std::exchange(mark, '&');
    append_encoded(key, &target);
    target += '=';
    append_encoded(value, &target);
  }
  return target;
}

}  // namespace carve::codec
