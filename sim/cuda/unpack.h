#pragma once

#include <cstdint>

namespace carve::sim::cu {

/// Unpacks one LZ4 block (the published block format). False when it does not fill `out` exactly.
bool unpack_lz4(const unsigned char* in, std::uint64_t in_bytes, unsigned char* out,
                std::uint64_t out_bytes);

}  // namespace carve::sim::cu
