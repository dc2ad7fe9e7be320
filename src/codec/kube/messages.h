#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// One page of a collection. Items have apiVersion and kind, which the server omits inside lists.
struct KubePage {
  std::vector<std::string> items;
  std::string version;    // metadata.resourceVersion: where a watch starts
  std::string continues;  // metadata.continue: the next page; empty: this is the last one
};
///   errors  kDataLoss: not a list
[[nodiscard]] Result<KubePage> parse_kube_page(std::string_view text);

/// One line of a watch.
struct KubeEvent {
  enum class Kind : std::uint8_t { kPut, kDeleted, kBookmark, kError } kind = Kind::kError;
  std::string object;   // kPut, kDeleted; mostly without metadata.managedFields, which Carve does not read
  std::string version;  // of the object or the bookmark: where the watch continues
  int status = 0;       // kError: an HTTP status; 410: the server no longer has the watch's resource version
  std::string message;  // kError
};
///   errors  kDataLoss: not an event
[[nodiscard]] Result<KubeEvent> parse_kube_event(std::string_view line);

/// The message of a Status object ("pods \"a\" not found"), or the first 200 printable characters of the text.
[[nodiscard]] std::string kube_message(std::string_view body);

/// True if the text is a Status object and one of its details.causes has this reason.
[[nodiscard]] bool kube_has_cause(std::string_view body, std::string_view reason);

/// "path?a=b&c=d", percent-encoded. The path is used as it is, if it is legal in a request line.
///   errors  kInvalidArgument: the path is not absolute or has a character that would need encoding
[[nodiscard]] Result<std::string> kube_target(std::string_view path,
                                              const std::vector<std::pair<std::string, std::string>>& query);

}  // namespace carve::codec
