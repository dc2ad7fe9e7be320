#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/kubeconfig/exec_credential.h"

// Any output of a plug-in gives a credential or an error; an accepted credential is complete and has a token or a
// certificate.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto said = carve::codec::parse_exec_credential(text, "client.authentication.k8s.io/v1");
  if (!said) return 0;
  if (said->certificate.empty() != said->key.empty()) std::abort();
  if (said->token.empty() && said->key.empty()) std::abort();
  return 0;
}
