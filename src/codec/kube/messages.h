#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// One page of a collection. Items carry apiVersion and kind, which the server leaves out inside of lists.
struct KubePage {
  std::vector<std::string> items;
  std::string version;    // metadata.resourceVersion: where a watch begins
  std::string continues;  // metadata.continue: the next page; empty: this is the last
};
///   errors  kDataLoss: not a list
[[nodiscard]] Result<KubePage> parse_kube_page(std::string_view text);

/// One line of a watch.
struct KubeEvent {
  enum class Kind : std::uint8_t { kPut, kDeleted, kBookmark, kError } kind = Kind::kError;
  std::string object;   // kPut, kDeleted; mostly without metadata.managedFields, which nobody here reads
  std::string version;  // of the object or the bookmark: where to go on
  int status = 0;       // kError: an HTTP status; 410: the server has forgotten where we were
  std::string message;  // kError
};
///   errors  kDataLoss: not an event
[[nodiscard]] Result<KubeEvent> parse_kube_event(std::string_view line);

/// The sentence in a Status object ("pods \"a\" not found"), or the text's first 200 printable characters.
[[nodiscard]] std::string kube_message(std::string_view body);

/// "path?a=b&c=d", percent-encoded. The path is taken as it is, when it can stand in a request's first line.
///   errors  kInvalidArgument: the path is not absolute or has a character that would need encoding
[[nodiscard]] Result<std::string> kube_target(std::string_view path,
                                              const std::vector<std::pair<std::string, std::string>>& query);

}  // namespace carve::codec
