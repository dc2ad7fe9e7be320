// The life cycle of the library, and calls that concern no single card.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "base/mutex.h"
#include "sim/nvml/call.h"

namespace carve::sim::nvml {

Library& library() {
  // Never destroyed: a program may call NVML from its own static destructors.
  static Library* lib = new Library;
  return *lib;
}

namespace {

Return connect(Library& lib) REQUIRES(lib.mutex) {
  if (Return r = Session::open(&lib.session); r != kSuccess) return r;
  lib.owner_pid = getpid();
  lib.visible = 0;
  for (const Card& card : lib.session->cards()) lib.handles[lib.visible++] = card;
  return kSuccess;
}

Return init(unsigned flags) {
  constexpr unsigned kNoGpus = 1, kNoAttach = 2;
  if ((flags & ~(kNoGpus | kNoAttach)) != 0) return kInvalidArgument;
  Library& lib = library();
  const MutexLock lock(lib.mutex);
  if (lib.users == 0) {
    if (Return r = connect(lib); r != kSuccess) return r;
  }
  ++lib.users;
  return kSuccess;
}

constexpr const char* kErrors[] = {
    "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
    "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
    "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
    "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
    "GPU access blocked by the operating system", "Driver/library version mismatch",
    "In use by another client", "Insufficient Memory", "No data", "vGPU ECC not supported",
    "Insufficient Resources", "Invalid Frequency", "Argument version mismatch",
    "Requested functionality has been deprecated", "System is not in ready state",
    "GPU not found", "Invalid state", "Reset type not supported"};

}  // namespace

Return live_session(Library& lib, Session** out) {
  if (lib.owner_pid != getpid()) {
    if (Return r = connect(lib); r != kSuccess) return r;
  }
  *out = lib.session.get();
  return kSuccess;
}

CARVE_NVML_EXPORT Return nvmlInit() { return init(0); }
CARVE_NVML_EXPORT Return nvmlInit_v2() { return init(0); }
CARVE_NVML_EXPORT Return nvmlInitWithFlags(unsigned flags) { return init(flags); }

CARVE_NVML_EXPORT Return nvmlShutdown() {
  Library& lib = library();
  const MutexLock lock(lib.mutex);
  if (lib.users == 0) return kUninitialized;
  if (--lib.users == 0) {
    lib.session.reset();
    lib.visible = 0;
  }
  return kSuccess;
}

CARVE_NVML_EXPORT const char* nvmlErrorString(Return code) {
  const auto at = static_cast<unsigned>(code);
  return at < sizeof kErrors / sizeof kErrors[0] ? kErrors[at] : "Unknown Error";
}

CARVE_NVML_EXPORT Return nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return on_library([&](Session&) { return put_text(out, length, kDriverVersionText); });
}

// Works before nvmlInit, like the real function.
CARVE_NVML_EXPORT Return nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  char text[32];
  std::snprintf(text, sizeof text, "%d.%s", kCudaDriverVersion / 1000, kDriverVersionText);
  return put_text(out, length, text);
}

CARVE_NVML_EXPORT Return nvmlSystemGetCudaDriverVersion(int* out) {
  return put(out, kCudaDriverVersion);
}
CARVE_NVML_EXPORT Return nvmlSystemGetCudaDriverVersion_v2(int* out) {
  return put(out, kCudaDriverVersion);
}

CARVE_NVML_EXPORT Return nvmlSystemGetDriverBranch(DriverBranch* out, unsigned length) {
  if (out == nullptr) return kInvalidArgument;
  if (out->version != struct_version<DriverBranch>(1)) return kVersionMismatch;
  return on_library([&](Session&) {
    return put_text(out->branch, length < sizeof out->branch ? length : sizeof out->branch, "r999");
  });
}

Return process_name(unsigned pid, char* out, unsigned length) {
  if (out == nullptr || length == 0) return kInvalidArgument;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kNotFound;
  char text[1024];
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (got <= 0) return kNotFound;
  text[got] = '\0';  // the first argument ends at its own NUL
  const std::size_t n = std::strlen(text) < length ? std::strlen(text) : length - 1;
  std::memcpy(out, text, n);
  out[n] = '\0';
  return kSuccess;
}

CARVE_NVML_EXPORT Return nvmlSystemGetProcessName(unsigned pid, char* out, unsigned length) {
  return on_library([&](Session&) { return process_name(pid, out, length); });
}

CARVE_NVML_EXPORT Return nvmlSystemGetHicVersion(unsigned* count, void*) {
  return on_library([&](Session&) { return put(count, 0); });
}
CARVE_NVML_EXPORT Return nvmlUnitGetCount(unsigned* count) {
  return on_library([&](Session&) { return put(count, 0); });
}
CARVE_NVML_EXPORT Return nvmlGetExcludedDeviceCount(unsigned* count) { return put(count, 0); }
CARVE_NVML_EXPORT Return nvmlGetBlacklistDeviceCount(unsigned* count) { return put(count, 0); }

}  // namespace carve::sim::nvml
