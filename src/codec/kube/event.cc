#include "codec/kube/event.h"

#include "codec/json_read.h"

namespace carve::codec {

namespace json = boost::json;

std::string encode_event(const EventNote& note, std::string_view name, std::string_view node,
                         std::string_view component, const EventTimes& times) {
  const auto view = [](std::string_view text) {
    return json::string_view(text.data(), text.size());
  };
  return json::serialize(
      json::object{{"apiVersion", "v1"},
                   {"kind", "Event"},
                   {"metadata", json::object{{"name", view(name)}, {"namespace", note.namespace_name}}},
                   {"involvedObject", json::object{{"kind", note.kind},
                                                   {"namespace", note.kind == "Node" ? "" : note.namespace_name},
                                                   {"name", note.name},
                                                   {"uid", note.uid},
                                                   {"apiVersion", "v1"}}},
                   {"type", note.warning ? "Warning" : "Normal"},
                   {"reason", note.reason},
                   {"message", note.message.substr(0, 1024)},
                   {"source", json::object{{"component", view(component)}, {"host", view(node)}}},
                   {"firstTimestamp", times.first_rfc3339},
                   {"lastTimestamp", times.last_rfc3339},
                   {"count", times.count}});
}

std::string uid_of(std::string_view object) {
  json::error_code error;
  const json::value value = json::parse(json::string_view(object.data(), object.size()), error);
  return error ? std::string() : json_read::text(value, "metadata.uid");
}

}  // namespace carve::codec
