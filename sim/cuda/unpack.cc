#include "sim/cuda/unpack.h"

#include <cstring>

namespace carve::sim::cu {
namespace {

/// Reads the further bytes of a length: each is 255 except the last.
bool extend(const unsigned char** in, const unsigned char* end, std::uint64_t* length) {
  for (;;) {
    if (*in == end) return false;
    const unsigned char more = *(*in)++;
    *length += more;
    if (more != 255) return true;
  }
}

}  // namespace

bool unpack_lz4(const unsigned char* in, std::uint64_t in_bytes, unsigned char* out,
                std::uint64_t out_bytes) {
  const unsigned char* const in_end = in + in_bytes;
  std::uint64_t at = 0;
  while (in < in_end) {
    const unsigned char token = *in++;
    std::uint64_t literals = token >> 4;
    if (literals == 15 && !extend(&in, in_end, &literals)) return false;
    if (literals > static_cast<std::uint64_t>(in_end - in) || literals > out_bytes - at)
      return false;
    if (literals > 0) std::memcpy(out + at, in, literals);
    in += literals;
    at += literals;
    if (in == in_end || at == out_bytes) break;
    if (in_end - in < 2) return false;
    const std::uint64_t distance = static_cast<std::uint64_t>(in[0] | (in[1] << 8));
    in += 2;
    std::uint64_t length = token & 15;
    if (length == 15 && !extend(&in, in_end, &length)) return false;
    length += 4;
    if (distance == 0 || distance > at || length > out_bytes - at) return false;
    for (std::uint64_t i = 0; i < length; ++i, ++at) out[at] = out[at - distance];
  }
  return at == out_bytes;
}

}  // namespace carve::sim::cu
