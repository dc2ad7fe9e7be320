// A client's bytes may have any content and may be split anywhere: each request is either complete or refused, and the
// buffers stay below the limit.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adapter/http/streams.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carve::http;
  if (size == 0) return 0;
  Limits limits;
  limits.body = 4096;
  limits.head = 1024;
  Streams streams(limits);
  const std::size_t piece = 1 + data[0];
  std::string text = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  text.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  Streams::Time now{};
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const auto asked = streams.feed(std::string_view(text).substr(at, piece), now);
    if (!asked) break;
    for (const auto& one : *asked) {
      if (one.http.body.size() > limits.body || one.http.path.size() > limits.head) std::abort();
      streams.reply(one.stream, {200, "text/plain", one.http.body});
    }
    while (!streams.output().empty()) {
    }
    if (streams.open() > Streams::kMostAtOnce) std::abort();
    now += std::chrono::milliseconds(10);
    streams.drop_slow(now - std::chrono::milliseconds(500));
  }
  streams.leave();
  while (!streams.output().empty()) {
  }
  return 0;
}
