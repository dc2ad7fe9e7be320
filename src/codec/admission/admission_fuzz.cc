#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/admission/answer.h"
#include "codec/admission/review.h"

// For any input: a review or an error, and an answer can be written with each of its texts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  using namespace carve::codec;
  const auto review = parse_review(text);
  if (!review) return 0;
  ReviewAnswer answer;
  answer.uid = review->uid;
  for (const auto& container : review->containers) {
    answer.warnings.push_back(container.name);
    answer.patch.push_back(
        {"add", container.path + "/" + pointer_word(container.name), json_text(container.name)});
  }
  static_cast<void>(to_json(answer));
  answer.refusal = std::string(text);
  static_cast<void>(to_json(answer));
  return 0;
}
