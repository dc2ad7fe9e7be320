#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "codec/kubelet/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto got = carve::codec::parse_checkpoint({reinterpret_cast<const char*>(data), size});
  if (!got) return 0;
  for (const auto& entry : *got) {
    if (entry.pod_uid.empty() || entry.container.empty() || entry.devices.empty()) std::abort();
  }
  return 0;
}
