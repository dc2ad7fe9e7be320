// Arbitrary bytes as a journal file. Checksums stop almost every input at the first line, so the same bytes are also
// put into lines with correct checksums. Any replayed state leads to a snapshot that replays to the same state.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "codec/journal/journal_text.h"

namespace {

void check(std::string_view text) {
  const auto replay = carve::codec::replay_journal(text);
  if (!replay) return;
  if (replay->good_bytes + replay->torn_bytes != text.size()) std::abort();
  const auto snapshot = carve::codec::journal_snapshot(1, replay->state, nullptr);
  if (!snapshot) std::abort();
  const auto again = carve::codec::replay_journal(*snapshot);
  if (!again || !(again->state == replay->state)) std::abort();
}

std::string with_checksum(std::size_t number, std::string_view events) {
  const std::string body = std::to_string(number) + " " + std::string(events);
  const std::string covered = std::to_string(body.size()) + " " + body;
  char crc[16];
  std::snprintf(crc, sizeof crc, "%08x ", carve::codec::crc32c(covered));
  return crc + covered + "\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  std::string file = carve::codec::journal_header(1);
  std::size_t number = 1;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    file += with_checksum(number++, text.substr(from, end - from));
    from = end + 1;
  }
  check(file);
  return 0;
}
