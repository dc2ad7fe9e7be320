#pragma once

#include <string>
#include <string_view>

namespace carve::codec {

/// A word about one object, for people (`kubectl describe`).
struct EventNote {
  std::string kind;   // "Pod", "Node"
  std::string space;  // where the event is: the object's, of a Node "default"
  std::string name;
  std::string uid;
  std::string reason;   // CamelCase
  std::string message;  // cause and fix; cut at 1024 characters
  bool warning = true;  // false: all is well
};

/// When it was said first and last, and how often.
struct EventTimes {
  std::string first_rfc3339;
  std::string last_rfc3339;
  int count = 1;
};

/// An Event (v1) object. `name` is unique in the namespace. As a merge patch it brings a standing
/// one up to date.
[[nodiscard]] std::string encode_event(const EventNote& note, std::string_view name,
                                       std::string_view node, std::string_view component,
                                       const EventTimes& times);

/// metadata.uid of any object; empty when there is none.
[[nodiscard]] std::string uid_of(std::string_view object);

}  // namespace carve::codec
