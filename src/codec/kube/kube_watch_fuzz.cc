#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "codec/kube/lines.h"
#include "codec/kube/messages.h"

// The first byte selects the sizes of the pieces in which the stream arrives. The lines must be the same as with one
// piece, and each is an event, a page, or an error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t step = data[0] % 16U + 1U;
  const std::string_view stream(reinterpret_cast<const char*>(data + 1), size - 1);
  carve::codec::Lines whole(1U << 20U);
  carve::codec::Lines pieces(1U << 20U);
  if (!whole.add(stream)) std::abort();
  std::string again;
  for (std::size_t at = 0; at < stream.size(); at += step) {
    if (!pieces.add(stream.substr(at, std::min(step, stream.size() - at)))) std::abort();
    while (const auto line = pieces.next()) again += *line + "\n";
  }
  std::string once;
  while (const auto line = whole.next()) {
    once += *line + "\n";
    const auto event = carve::codec::parse_kube_event(*line);
    // The object is the line's own text or a new serialization: an event around either of them is equal.
    if (event && event->kind == carve::codec::KubeEvent::Kind::kPut) {
      const auto same = carve::codec::parse_kube_event(R"({"type":"ADDED","object":)" + event->object + "}");
      if (!same || same->version != event->version) std::abort();
    }
    (void)carve::codec::parse_kube_page(*line);
    (void)carve::codec::kube_message(*line);
    (void)carve::codec::kube_has_cause(*line, "DisruptionBudget");
  }
  if (once != again) std::abort();
  return 0;
}
