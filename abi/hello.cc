#include "abi/hello.h"

#include "abi/page.h"

namespace carve::abi {

WelcomeStatus judge_hello(const void* bytes, std::size_t length, Hello* out) {
  if (length != sizeof *out) return WelcomeStatus::kMalformed;
  __builtin_memcpy(out, bytes, sizeof *out);
  if (out->magic != kHelloMagic) return WelcomeStatus::kMalformed;
  if (out->kind != LibraryKind::kCuda && out->kind != LibraryKind::kNvml) return WelcomeStatus::kMalformed;
  if (out->abi_min > out->abi_max) return WelcomeStatus::kMalformed;
  if (out->abi_min > kPageAbi || out->abi_max < kClientAbiMin) return WelcomeStatus::kAbiUnsupported;
  return WelcomeStatus::kOk;
}

}  // namespace carve::abi
