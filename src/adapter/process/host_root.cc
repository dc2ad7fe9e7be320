#include "adapter/process/host_root.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>

namespace carve::process {
namespace {
constexpr const char* kOfTheCLibrary[] = {"libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6"};
}  // namespace

Result<void> enter_host_root(const std::string& host_root) {
  // If one is missing, the host's is used: since glibc 2.34 these four are stubs, or do not depend on its version.
  for (const char* name : kOfTheCLibrary) static_cast<void>(::dlopen(name, RTLD_NOW | RTLD_GLOBAL));
  if (::chroot(host_root.c_str()) != 0) return tl::unexpected(errno_error(errno, "enter host root " + host_root));
  if (::chdir("/") != 0) return tl::unexpected(errno_error(errno, "enter host root " + host_root));
  return {};
}

}  // namespace carve::process
