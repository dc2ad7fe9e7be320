#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// One step of a JSON patch (RFC 6902).
struct PatchStep {
  std::string operation;  // add, replace, remove
  std::string path;       // JSON pointer
  std::string value;      // JSON text; empty with remove
  friend bool operator==(const PatchStep&, const PatchStep&) = default;
};

/// The answer to a review.
struct ReviewAnswer {
  std::string uid;
  std::string refusal;  // empty: allowed
  std::vector<std::string> warnings;
  std::vector<PatchStep> patch;  // mutating webhooks only: the API server refuses a patch from a validating webhook
};

/// The AdmissionReview with the answer, on one line. Warnings are shortened to what the API server passes on.
[[nodiscard]] std::string to_json(const ReviewAnswer& answer);

/// A member's name as it is written in a JSON pointer (RFC 6901): / is ~1, ~ is ~0.
[[nodiscard]] std::string pointer_word(std::string_view name);
/// A text as a JSON string.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace carve::codec
