// Any bytes as a file of the history and as an answer: no crash; frames that are written again read the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "codec/history/history_segment.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<carve::HistoryFrame> frames;
  if (carve::codec::decode_history(text, [&](const auto& frame) { frames.push_back(frame); })) {
    carve::codec::HistoryWriter writer;
    std::string again(frames.empty() ? carve::codec::kHistoryMagic : std::string_view());
    for (const auto& frame : frames) again += writer.encode(frame, SIZE_MAX / 2);
    std::vector<carve::HistoryFrame> read;
    if (!carve::codec::decode_history(again, [&](const auto& frame) { read.push_back(frame); })) std::abort();
    if (read != frames) std::abort();
  }
  if (const auto answer = carve::codec::parse_history_answer(text)) {
    const auto once = carve::codec::to_json(*answer);
    const auto again = carve::codec::parse_history_answer(once);
    if (!again || carve::codec::to_json(*again) != once) std::abort();
  }
  return 0;
}
