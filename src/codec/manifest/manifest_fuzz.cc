#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/manifest/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carve::codec;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ManifestRules rules;
  rules.dialects.hami = true;
  if (size > 0 && data[0] % 4 != 0) rules.to = static_cast<Spelling>(data[0] % 4 - 1);
  const auto read = read_manifest(text, rules);
  bool changed = false;
  for (const auto& remark : read.remarks) changed = changed || remark.kind == Remark::Kind::kRepaired;
  if (!changed && read.text != text) std::abort();
  // What is repaired stays repaired.
  const auto again = read_manifest(read.text, {rules.dialects});
  if (!rules.to && again.text != read.text) std::abort();
  return 0;
}
