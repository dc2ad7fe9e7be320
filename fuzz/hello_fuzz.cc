// Arbitrary bytes on a slice's socket: accepted only when they are a hello that this build can answer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "abi/hello.h"
#include "abi/page.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carve::abi;
  Hello hello{};
  if (judge_hello(data, size, &hello) != WelcomeStatus::kOk) return 0;
  const bool right = size == sizeof hello && std::memcmp(data, &hello, sizeof hello) == 0 &&
                     hello.magic == kHelloMagic && hello.abi_min <= kPageAbi && hello.abi_max >= kClientAbiMin &&
                     (hello.kind == LibraryKind::kCuda || hello.kind == LibraryKind::kNvml);
  if (!right) std::abort();
  return 0;
}
