#pragma once

#include "codec/json_read.h"

// For short-lived documents: an event of a watch, a call of kube-scheduler.
namespace carve::codec::json_read {

/// One block of memory for a document of that text; usually the document needs no more.
class Memory {
 public:
  explicit Memory(std::string_view text) : block_(2 * text.size() + 4096) {}
  [[nodiscard]] json::storage_ptr place() { return &block_; }

 private:
  json::monotonic_resource block_;
};

/// parse() of json_read.h into `memory`, which must outlive the result. Several times cheaper than one allocation per
/// value.
///   errors  kInvalidArgument: not JSON, or nested deeper than `depth`
[[nodiscard]] inline Result<json::value> parse_in(Memory& memory, std::string_view text, std::string_view what,
                                                  std::size_t depth = 64) {
  json::parse_options options;
  options.max_depth = depth;
  json::error_code error;
  auto value = json::parse(json::string_view(text.data(), text.size()), error, memory.place(), options);
  if (error) return fail(Code::kInvalidArgument, std::string(what) + ": not JSON: " + error.message());
  return value;
}

}  // namespace carve::codec::json_read
