// The binary facts of NVML that the simulated library and its tests need: numbers and struct layouts, in our own words.
// tests/thirdparty (nvml_layout) compares them with NVIDIA's header. Only layouts that a modelled function uses are
// here. All integers have their width on x86-64 Linux.
#pragma once

#include <cstdint>

namespace carve::sim::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kVersionMismatch = 25,
  kUnknown = 999,
};

/// Opaque to callers; points to the card's own entry.
struct Card;
using Device = Card*;

/// The value of the `version` field of a versioned struct.
template <class T>
constexpr std::uint32_t struct_version(std::uint32_t version) {
  return static_cast<std::uint32_t>(sizeof(T)) | version << 24;
}

/// "Unknown" in GPU and compute instance ids: the whole card.
inline constexpr std::uint32_t kNoInstance = 0xFFFFFFFF;

struct PciInfo {
  char bus_id_legacy[16];
  std::uint32_t domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct PciInfoV1 {
  char bus_id[16];
  std::uint32_t domain, bus, device, device_id;
};
struct PciInfoV2 {
  char bus_id[16];
  std::uint32_t domain, bus, device, device_id, subsystem_id, reserved[4];
};
struct PciInfoExt {
  std::uint32_t version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
  char bus_id[32];
};

struct Memory {
  std::uint64_t total, free, used;
};
struct MemoryV2 {
  std::uint32_t version;
  std::uint64_t total, reserved, free, used;
};
struct Bar1Memory {
  std::uint64_t total, free, used;
};

/// The record of the unversioned process calls.
struct ProcessV1 {
  std::uint32_t pid;
  std::uint64_t used;
};
/// The record of the _v2 and _v3 calls.
struct ProcessV2 {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t gpu_instance, compute_instance;
};
struct ProcessDetail {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t gpu_instance, compute_instance;
  std::uint64_t used_protected;
};
struct ProcessDetailList {
  std::uint32_t version, mode, count;
  ProcessDetail* entries;
};

struct Utilization {
  std::uint32_t gpu, memory;
};
struct ProcessUtilizationSample {
  std::uint32_t pid;
  std::uint64_t time_us;
  std::uint32_t sm, memory, encoder, decoder;
};
struct ProcessUtilizationInfo {
  std::uint64_t time_us;
  std::uint32_t pid, sm, memory, encoder, decoder, jpeg, ofa;
};
struct ProcessesUtilizationInfo {
  std::uint32_t version, count;
  std::uint64_t last_seen_us;
  ProcessUtilizationInfo* entries;
};

union Value {
  double f64;
  std::int32_t s32;
  std::uint32_t u32;
  std::uint64_t u64;
  std::int64_t s64;
};
enum ValueType : int { kTypeU32 = 1, kTypeU64 = 3 };
struct Sample {
  std::uint64_t time_us;
  Value value;
};
struct FieldValue {
  std::uint32_t field, scope;
  std::int64_t time_us, latency_us;
  ValueType type;
  Return result;
  Value value;
};

struct Attributes {
  std::uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices,
      compute_slices;
  std::uint64_t memory_mib;
};
struct EccCounts {
  std::uint64_t l1, l2, device_memory, register_file;
};
struct EccSramStatus {
  std::uint32_t version;
  std::uint64_t counts[11];
  std::uint32_t threshold_exceeded;
};
struct RowRemapperHistogram {
  std::uint32_t max, high, partial, low, none;
};
struct Temperature {
  std::uint32_t version;
  std::int32_t sensor, celsius;
};
struct MarginTemperature {
  std::uint32_t version;
  std::int32_t celsius;
};
struct EventData {
  Device device;
  std::uint64_t type, data;
  std::uint32_t gpu_instance, compute_instance;
};
struct Uuid {
  std::uint32_t version, type;  // type: 1 = text, 2 = 16 bytes
  union {
    char text[41];
    unsigned char bytes[16];
  };
};
struct FabricInfo {
  unsigned char cluster[16];
  Return status;
  std::uint32_t clique;
  unsigned char state;
};
struct FabricInfoV {
  std::uint32_t version;
  unsigned char cluster[16];
  Return status;
  std::uint32_t clique;
  unsigned char state;
  std::uint32_t health_mask;
  unsigned char health_summary;  // only in version 3
};
struct DriverBranch {
  std::uint32_t version;
  char branch[80];
};
struct FbcStats {
  std::uint32_t sessions, average_fps, average_latency;
};
struct DynamicPstates {
  std::uint32_t flags;
  struct {
    std::uint32_t present, percentage, increase_threshold, decrease_threshold;
  } domains[8];
};

static_assert(sizeof(PciInfo) == 68 && sizeof(PciInfoExt) == 64);
static_assert(sizeof(MemoryV2) == 40 && sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24);
static_assert(sizeof(ProcessDetail) == 32 && sizeof(ProcessDetailList) == 24);
static_assert(sizeof(ProcessUtilizationSample) == 32 && sizeof(ProcessUtilizationInfo) == 40);
static_assert(sizeof(FieldValue) == 40 && sizeof(Sample) == 16 && sizeof(EventData) == 32 &&
              sizeof(Attributes) == 40 && sizeof(Uuid) == 52 && sizeof(EccSramStatus) == 104);

}  // namespace carve::sim::nvml
