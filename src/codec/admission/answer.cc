#include "codec/admission/answer.h"

#include <boost/json.hpp>

#include "codec/base64.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

// The API server truncates each warning to 256 characters and passes on at most 4,096 characters in total.
constexpr std::size_t kMaxWarning = 256;
constexpr std::size_t kMaxWarnings = 4096;
constexpr int kUnprocessable = 422;

std::string patch_text(const std::vector<PatchStep>& patch) {
  std::string out = "[";
  for (const PatchStep& step : patch) {
    if (out.size() > 1) out += ',';
    out += R"({"op":)" + json_text(step.operation) + R"(,"path":)" + json_text(step.path);
    if (!step.value.empty()) out += R"(,"value":)" + step.value;
    out += '}';
  }
  return out + "]";
}

/// Truncates the text to at most `most` bytes without splitting a character.
std::string cut(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

std::string pointer_word(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string json_text(std::string_view text) {
  return json::serialize(json::string(json::string_view(text.data(), text.size())));
}

std::string to_json(const ReviewAnswer& answer) {
  json::object response{{"uid", answer.uid}, {"allowed", answer.refusal.empty()}};
  if (!answer.refusal.empty()) {
    response["status"] =
        json::object{{"code", kUnprocessable}, {"reason", "Invalid"}, {"message", answer.refusal}};
  } else if (!answer.patch.empty()) {
    response["patchType"] = "JSONPatch";
    response["patch"] = encode_base64(patch_text(answer.patch));
  }
  json::array warnings;
  std::size_t size = 0;
  for (const std::string& warning : answer.warnings) {
    const std::string shown = cut(warning, kMaxWarning);
    size += shown.size();
    if (size <= kMaxWarnings) warnings.emplace_back(shown);
  }
  if (!warnings.empty()) response["warnings"] = std::move(warnings);
  return json::serialize(json::object{{"apiVersion", "admission.k8s.io/v1"},
                                      {"kind", "AdmissionReview"},
                                      {"response", std::move(response)}});
}

}  // namespace carve::codec
