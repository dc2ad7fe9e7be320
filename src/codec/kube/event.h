#pragma once

#include <string>
#include <string_view>

namespace carve::codec {

/// A message about one object, for users (`kubectl describe`).
struct EventNote {
  std::string kind;   // "Pod", "Node"
  std::string namespace_name;  // the namespace of the event: the object's, or "default" for a Node
  std::string name;
  std::string uid;
  std::string reason;   // CamelCase
  std::string message;  // cause and fix; truncated to 1024 characters
  bool warning = true;  // false: type Normal
};

/// The times of the first and the last occurrence, and their number.
struct EventTimes {
  std::string first_rfc3339;
  std::string last_rfc3339;
  int count = 1;
};

/// An Event (v1) object. `name` is unique in the namespace. As a merge patch it updates an existing event.
[[nodiscard]] std::string encode_event(const EventNote& note, std::string_view name,
                                       std::string_view node, std::string_view component,
                                       const EventTimes& times);

/// metadata.uid of any object; empty when there is none.
[[nodiscard]] std::string uid_of(std::string_view object);

}  // namespace carve::codec
