// Any account with the permission to write Secrets may have written this one: invalid content may only be replaced.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "adapter/tls/secret.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carve::tls;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (auto secret = parse_secret(text)) {
    auto kept = kept_in(*secret);
    keep(kept, &*secret);
    // The written Secret is read back.
    const auto again = parse_secret(secret_json(*secret, "s", "n", text));
    if (!again || again->data != secret->data) std::abort();
  }
  (void)webhook_patch(text, "s", "n", "x");
  const auto bytes = from_base64(text);
  if (bytes && from_base64(to_base64(*bytes)).value_or("") != *bytes) std::abort();
  for (const auto& one : certificates_in(text)) (void)facts_of(one);
  (void)belongs(text, text);
  return 0;
}
