#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/kubeconfig/kubeconfig.h"

// Any bytes give a kubeconfig or an error; one that is accepted has a server over TLS and whole credentials.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = carve::codec::parse_kubeconfig(text);
  if (!config) return 0;
  if (!config->server.starts_with("https://")) std::abort();
  if (config->certificate.empty() != config->key.empty()) std::abort();
  return 0;
}
