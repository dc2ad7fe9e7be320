// Arbitrary text as the kernel's list of devices and the driver's parameters: every resulting node is a legal one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "adapter/cdi/device_nodes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(carve::cdi::node_rules(text));
  const auto drivers = carve::cdi::character_devices(text);
  for (const auto& node : carve::cdi::wanted_nodes(drivers, {0, 7})) {
    if (node.path.rfind("/dev/nvidia", 0) != 0 || node.major >= 4096 || node.minor > 255) std::abort();
  }
  return 0;
}
