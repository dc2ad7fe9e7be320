#include "tests/attacks/driver.h"

#include <dlfcn.h>

#include <chrono>
#include <string>
#include <thread>

namespace carve::attacks {
namespace {

// The part of the ABI that is used here: CUresult is an int, handles are pointers, a CUdeviceptr has 8 bytes.
using Init = int (*)(unsigned);
using DeviceGet = int (*)(int*, int);
using Retain = int (*)(void**, int);
using SetCurrent = int (*)(void*);
using Alloc = int (*)(std::uint64_t*, std::size_t);
using ModuleLoad = int (*)(void**, const void*);
using GetFunction = int (*)(void**, void*, const char*);
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                       void**);
using GetProc = int (*)(const char*, void**, int, std::uint64_t, int*);

constexpr int kNotFound = -1;

template <class F>
F entry(const Find& find, const char* name) {
  return reinterpret_cast<F>(find(name));
}

int open_device(const Find& find) {
  const auto init = entry<Init>(find, "cuInit");
  const auto device_get = entry<DeviceGet>(find, "cuDeviceGet");
  const auto retain = entry<Retain>(find, "cuDevicePrimaryCtxRetain");
  const auto set_current = entry<SetCurrent>(find, "cuCtxSetCurrent");
  if (!init || !device_get || !retain || !set_current) return kNotFound;
  int device = 0;
  void* context = nullptr;
  if (const int status = init(0)) return status;
  if (const int status = device_get(&device, 0)) return status;
  if (const int status = retain(&context, device)) return status;
  return set_current(context);
}

constexpr char kModule[] =
    "// carve.duration_us=500\n.version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry carve_spin_500us()\n{\n  ret;\n}\n";

int load_kernel(const Find& find, void** function) {
  if (const int status = open_device(find)) return status;
  const auto load = entry<ModuleLoad>(find, "cuModuleLoadData");
  const auto get = entry<GetFunction>(find, "cuModuleGetFunction");
  if (!load || !get) return kNotFound;
  void* module = nullptr;
  if (const int status = load(&module, kModule)) return status;
  return get(function, module, "carve_spin_500us");
}

}  // namespace

Taken take_memory(const Find& find, std::uint64_t target, std::uint64_t step) {
  Taken taken;
  taken.refused_with = open_device(find);
  taken.reached_driver = taken.refused_with != kNotFound;
  if (taken.refused_with != 0) return taken;
  // An attacker tries the older name in case only the newer one is covered.
  auto alloc = entry<Alloc>(find, "cuMemAlloc_v2");
  if (!alloc) alloc = entry<Alloc>(find, "cuMemAlloc");
  while (alloc && taken.bytes < target) {
    std::uint64_t address = 0;
    taken.refused_with = alloc(&address, step);
    if (taken.refused_with != 0) break;
    taken.bytes += step;
  }
  return taken;
}

Taken take_globals(const Find& find, std::uint64_t bytes) {
  Taken taken;
  taken.refused_with = open_device(find);
  taken.reached_driver = taken.refused_with != kNotFound;
  if (taken.refused_with != 0) return taken;
  const auto load = entry<ModuleLoad>(find, "cuModuleLoadData");
  const std::string source = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 carve_big[" +
                             std::to_string(bytes) + "];\n.visible .entry carve_fill()\n{\n  ret;\n}\n";
  void* module = nullptr;
  taken.refused_with = load ? load(&module, source.c_str()) : kNotFound;
  if (taken.refused_with == 0) taken.bytes = bytes;
  return taken;
}

Taken take_without_context(const Find& find, std::uint64_t target, std::uint64_t step) {
  // CUmemAllocationProp: type, handle types, location (type, id), a pointer and 8 bytes of flags.
  struct Properties {
    int type = 1;  // pinned
    int handle_types = 0;
    int location_type = 1;  // a device
    int location_id = 0;
    void* meta = nullptr;
    unsigned char flags[8] = {};
  };
  using Create = int (*)(std::uint64_t*, std::size_t, const Properties*, std::uint64_t);
  Taken taken;
  const auto init = entry<Init>(find, "cuInit");
  const auto create = entry<Create>(find, "cuMemCreate");
  taken.reached_driver = init && create;
  taken.refused_with = taken.reached_driver ? init(0) : kNotFound;
  const Properties properties;
  while (taken.refused_with == 0 && taken.bytes < target) {
    std::uint64_t handle = 0;
    taken.refused_with = create(&handle, step, &properties, 0);
    if (taken.refused_with == 0) taken.bytes += step;
  }
  return taken;
}

std::uint64_t burst_of_memory(const Find& find, std::uint64_t bytes, unsigned milliseconds) {
  using Free = int (*)(std::uint64_t);
  const auto alloc = entry<Alloc>(find, "cuMemAlloc_v2");
  const auto give_back = entry<Free>(find, "cuMemFree_v2");
  std::uint64_t address = 0;
  if (!alloc || !give_back || open_device(find) != 0 || alloc(&address, bytes) != 0) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  give_back(address);
  return bytes;
}

std::uint64_t free_memory(const Find& find) {
  using GetInfo = int (*)(std::size_t*, std::size_t*);
  const auto get = entry<GetInfo>(find, "cuMemGetInfo_v2");
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  return get && get(&free_bytes, &total) == 0 ? free_bytes : 0;
}

int launch_kernels(const Find& find, unsigned launches) {
  void* function = nullptr;
  if (const int status = load_kernel(find, &function)) return status;
  const auto launch = entry<Launch>(find, "cuLaunchKernel");
  for (unsigned i = 0; launch && i < launches; ++i) {
    if (const int status = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr)) return status;
  }
  return launch ? 0 : kNotFound;
}

int compute_for(const Find& find, std::uint64_t milliseconds, unsigned busy_percent, int queued) {
  using Synchronize = int (*)();
  void* function = nullptr;
  if (const int status = load_kernel(find, &function)) return status;
  const auto launch = entry<Launch>(find, "cuLaunchKernel");
  const auto synchronize = entry<Synchronize>(find, "cuCtxSynchronize");
  if (!launch || !synchronize) return kNotFound;
  if (busy_percent == 0 || busy_percent > 100) return kNotFound;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < queued; ++i) {
      if (const int status = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr)) return status;
    }
    if (const int status = synchronize()) return status;
    std::this_thread::sleep_for((std::chrono::steady_clock::now() - begin) * (100 - busy_percent) / busy_percent);
  }
  return 0;
}

Find in_handle(void* handle) {
  return [handle](const char* name) { return handle ? dlsym(handle, name) : nullptr; };
}

Find by_get_proc_address(void* handle) {
  const auto get = handle ? reinterpret_cast<GetProc>(dlsym(handle, "cuGetProcAddress_v2")) : nullptr;
  return [get](const char* name) -> void* {
    void* found = nullptr;
    int status = 0;
    if (get) get(name, &found, 12000, 0, &status);
    return found;
  };
}

}  // namespace carve::attacks
