#include <cstddef>
#include <cstdint>
#include <string>

#include "codec/settings/cluster_config.h"

// Any text of cluster.conf results in legal settings, or in an error that names the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = carve::codec::parse_cluster_config(text, "cluster.conf");
  if (!config) {
    if (config.error().what.find("cluster.conf:") == std::string::npos) __builtin_trap();
    return 0;
  }
  const bool plugins = config->plugins == "dra" || config->plugins == "slots" || config->plugins == "dra,slots" ||
                     config->plugins == "dra,slots,shared";
  if (!plugins || config->policy.empty() || config->totals().empty()) __builtin_trap();
  if (config->gpushare_unit != carve::Bytes::gib(1) && config->gpushare_unit != carve::Bytes::mib(1)) __builtin_trap();
  return 0;
}
