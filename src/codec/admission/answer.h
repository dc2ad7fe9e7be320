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

/// What is answered to a review.
struct ReviewAnswer {
  std::string uid;
  std::string refusal;  // empty: allowed
  std::vector<std::string> warnings;
  std::vector<PatchStep>
      patch;  // only of a mutating webhook: the API server refuses one from a validating webhook
};

/// The AdmissionReview that carries the answer, on one line. Warnings are cut to what the API
/// server passes on.
[[nodiscard]] std::string to_json(const ReviewAnswer& answer);

/// A member's name as it stands in a JSON pointer (RFC 6901): / is ~1, ~ is ~0.
[[nodiscard]] std::string pointer_word(std::string_view name);
/// Text as JSON.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace carve::codec
