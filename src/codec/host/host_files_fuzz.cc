#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/host/cdi_spec.h"
#include "codec/host/engine_config.h"
#include "codec/host/injection.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(carve::codec::parse_cdi_spec(text));
  if (const auto injection = carve::codec::parse_injection(text))
    static_cast<void>(carve::codec::docker_arguments(*injection));
  static_cast<void>(carve::codec::parse_docker_config(text));
  static_cast<void>(carve::codec::toml_settings(text));
  static_cast<void>(carve::codec::installed_packages(text));
  return 0;
}
