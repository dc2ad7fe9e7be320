#pragma once

#include <cstdint>

// Carve's own prototypes of the NVML functions that it calls. The build needs no header of the vendor, and every symbol
// may be missing at run time. The facts are from the published interface.
namespace carve::nvml {

struct DeviceHandle;
using Device = DeviceHandle*;

enum Status : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kMismatch = 18,
  kUnknown = 999,
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Memory {
  std::uint64_t total, free, used;
};
struct MemoryV2 {
  unsigned version;
  std::uint64_t total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfo {  // of the _v2 and _v3 calls
  unsigned pid;
  std::uint64_t used;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);
struct ProcessSample {
  unsigned pid;
  std::uint64_t time_us;
  unsigned sm, memory, encoder, decoder;
};
static_assert(sizeof(ProcessSample) == 32);

struct FieldValue {  // of nvmlDeviceGetFieldValues
  std::uint32_t field, scope;
  std::int64_t time_us, latency_us;
  std::uint32_t type, status;
  std::uint64_t value;
};
static_assert(sizeof(FieldValue) == 40);
inline constexpr std::uint32_t kFieldRecoveryAction = 230;
struct GpmSampleHandle;
using GpmSample = GpmSampleHandle*;
inline constexpr std::uint32_t kGpmVersion = 1;  // of both records
struct GpmSupport {
  std::uint32_t version, supported;
};
struct GpmMetric {
  std::uint32_t id;
  int status;
  double value;
  const char *short_name, *long_name, *unit;
};
static_assert(sizeof(GpmMetric) == 40);
struct GpmMetricsGet {  // the driver reads and writes `count` metrics; its own record has more room
  std::uint32_t version, count;
  GpmSample first, second;
  GpmMetric metrics[8];
};
struct EventSetHandle;
using EventSet = EventSetHandle*;
struct EventData {  // of nvmlEventSetWait_v2; the older function writes only the first three fields
  Device device;
  std::uint64_t type, data;
  std::uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(EventData) == 32);

/// The resolved symbols; null: missing. library.cc has the exported names.
struct Api {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*minor)(Device, unsigned*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*memory_v2)(Device, MemoryV2*) = nullptr;
  int (*numa)(Device, unsigned*) = nullptr;
  int (*architecture)(Device, unsigned*) = nullptr;
  int (*compute_capability)(Device, int*, int*) = nullptr;
  int (*memory_affinity)(Device, unsigned, unsigned long*, unsigned) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*clock)(Device, int domain, unsigned*) = nullptr;
  int (*compute_processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  int (*graphics_processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  int (*process_utilization)(Device, ProcessSample*, unsigned*, unsigned long long) = nullptr;
  int (*common_ancestor)(Device, Device, int*) = nullptr;
  int (*p2p_status)(Device, Device, int, int*) = nullptr;
  int (*nvlink_state)(Device, unsigned, unsigned*) = nullptr;
  int (*field_values)(Device, int, FieldValue*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;
  int (*gpm_support)(Device, GpmSupport*) = nullptr;
  int (*gpm_alloc)(GpmSample*) = nullptr;
  int (*gpm_free)(GpmSample) = nullptr;
  int (*gpm_sample)(Device, GpmSample) = nullptr;
  int (*gpm_metrics)(GpmMetricsGet*) = nullptr;
  int (*event_set_create)(EventSet*) = nullptr;
  int (*supported_events)(Device, unsigned long long*) = nullptr;
  int (*register_events)(Device, unsigned long long, EventSet) = nullptr;
  int (*event_wait)(EventSet, EventData*, unsigned) = nullptr;
};

}  // namespace carve::nvml
