#include "adapter/nvml/library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>

#include "adapter/process/text_file.h"

namespace carve::nvml {
namespace {

constexpr std::array<const char*, 6> kFolders = {"",         "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                                                 "/usr/lib", "/lib/x86_64-linux-gnu",     "/lib64"};

std::string find_below(const std::string& root, const char* name) {
  for (const char* folder : kFolders) {
    const std::string path = root + folder + "/" + name;
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

template <class F>
void resolve(void* handle, F& slot, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* found = ::dlsym(handle, name)) {
      slot = reinterpret_cast<F>(found);
      return;
    }
  }
}

Api resolve_all(void* h) {
  Api api;
  resolve(h, api.init, {"nvmlInit_v2", "nvmlInit"});
  resolve(h, api.shutdown, {"nvmlShutdown"});
  resolve(h, api.error_string, {"nvmlErrorString"});
  resolve(h, api.driver_version, {"nvmlSystemGetDriverVersion"});
  resolve(h, api.cuda_version, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  resolve(h, api.count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  resolve(h, api.by_index, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  resolve(h, api.uuid, {"nvmlDeviceGetUUID"});
  resolve(h, api.name, {"nvmlDeviceGetName"});
  resolve(h, api.minor, {"nvmlDeviceGetMinorNumber"});
  resolve(h, api.pci, {"nvmlDeviceGetPciInfo_v3"});
  resolve(h, api.memory, {"nvmlDeviceGetMemoryInfo"});
  resolve(h, api.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  resolve(h, api.numa, {"nvmlDeviceGetNumaNodeId"});
  resolve(h, api.architecture, {"nvmlDeviceGetArchitecture"});
  resolve(h, api.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  resolve(h, api.memory_affinity, {"nvmlDeviceGetMemoryAffinity"});
  resolve(h, api.utilization, {"nvmlDeviceGetUtilizationRates"});
  resolve(h, api.temperature, {"nvmlDeviceGetTemperature"});
  resolve(h, api.power, {"nvmlDeviceGetPowerUsage"});
  resolve(h, api.clock, {"nvmlDeviceGetClockInfo"});
  // The names without a suffix use a shorter record and must not be used instead.
  resolve(h, api.compute_processes,
          {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  resolve(h, api.graphics_processes,
          {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
  resolve(h, api.process_utilization, {"nvmlDeviceGetProcessUtilization"});
  resolve(h, api.common_ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  resolve(h, api.p2p_status, {"nvmlDeviceGetP2PStatus"});
  resolve(h, api.nvlink_state, {"nvmlDeviceGetNvLinkState"});
  resolve(h, api.field_values, {"nvmlDeviceGetFieldValues"});
  resolve(h, api.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
  resolve(h, api.gpm_support, {"nvmlGpmQueryDeviceSupport"});
  resolve(h, api.gpm_alloc, {"nvmlGpmSampleAlloc"});
  resolve(h, api.gpm_free, {"nvmlGpmSampleFree"});
  resolve(h, api.gpm_sample, {"nvmlGpmSampleGet"});
  resolve(h, api.gpm_metrics, {"nvmlGpmMetricsGet"});
  resolve(h, api.event_set_create, {"nvmlEventSetCreate"});
  resolve(h, api.supported_events, {"nvmlDeviceGetSupportedEventTypes"});
  resolve(h, api.register_events, {"nvmlDeviceRegisterEvents"});
  resolve(h, api.event_wait, {"nvmlEventSetWait_v2", "nvmlEventSetWait"});
  return api;
}

std::string loaded_from(void* handle) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return process::real_path(map->l_name);
}

std::string find_cuda(const std::string& driver_root, const std::string& nvml_file, const char* name) {
  if (!driver_root.empty()) return process::real_path(find_below(driver_root, name));
  const std::string beside = nvml_file.substr(0, nvml_file.rfind('/') + 1) + name;
  const std::string found = process::real_path(beside);
  return found.empty() ? process::real_path(find_below("", name)) : found;
}

}  // namespace

std::string describe(const Api& api, int status) {
  const char* words = api.error_string != nullptr ? api.error_string(status) : nullptr;
  return words != nullptr ? std::string(words) + " (" + std::to_string(status) + ")"
                          : "code " + std::to_string(status);
}

Result<Library> open_library(const std::string& driver_root) {
  const ProviderRow& row = kProviders[0];
  std::string name = row.management_library;
  if (!driver_root.empty()) {
    name = find_below(driver_root, row.management_library);
    if (name.empty()) {
      return fail(Code::kUnavailable,
                  std::string(row.management_library) + " does not exist below driver root " + driver_root);
    }
  }
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(Code::kUnavailable, "no driver library: " + std::string(::dlerror()));
  Library library;
  library.api = resolve_all(handle);
  library.nvml_file = loaded_from(handle);
  library.cuda_file = find_cuda(driver_root, library.nvml_file, row.compute_library);
  const Api& api = library.api;
  if (api.init == nullptr || api.count == nullptr || api.by_index == nullptr || api.uuid == nullptr) {
    return fail(Code::kUnavailable, library.nvml_file + ": not a management library (symbols missing)");
  }
  if (const int status = api.init(); status != kSuccess) {
    return fail(Code::kUnavailable, "nvmlInit: " + describe(api, status));
  }
  return library;
}

}  // namespace carve::nvml
