#include "codec/cluster/notes.h"

#include <algorithm>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace read = json_read;

/// RFC 3339 in UTC sorts as text. New events have eventTime, old ones lastTimestamp, and repeated ones series.
std::string time_of(const boost::json::value& event) {
  return std::max({read::text(event, "series.lastObservedTime"), read::text(event, "lastTimestamp"),
                   read::text(event, "eventTime")});
}

}  // namespace

std::string config_map_value(std::string_view text, std::string_view key) {
  const auto value = read::parse(text, "ConfigMap");
  return value ? read::text_named(read::at(*value, "data"), key) : std::string();
}

ObjectName read_object_name(std::string_view text) {
  const auto value = read::parse(text, "object");
  if (!value) return {};
  return {read::text(*value, "metadata.namespace"), read::text(*value, "metadata.name"),
          read::text(*value, "metadata.uid"), read::text(*value, "metadata.resourceVersion")};
}

std::string scheduler_word(const std::vector<std::string>& events) {
  std::string word;
  std::string newest;
  for (const auto& text : events) {
    const auto event = read::parse(text, "Event");
    if (!event) continue;
    const auto reason = read::text(*event, "reason");
    if (reason != "FailedScheduling" && reason != "Scheduled") continue;
    auto time = time_of(*event);
    if (!word.empty() && time < newest) continue;
    newest = std::move(time);
    word = read::text(*event, "message");
  }
  return word;
}

}  // namespace carve::codec
