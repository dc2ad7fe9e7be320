#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/driver.h"
#include "sim/cuda/memory.h"

// Device queries. The numbers of attributes are those of CUdevice_attribute in the driver API.
namespace carve::sim::cu {
namespace {

CUresult find(int ordinal, Device** device) {
  if (Driver::get().ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  *device = Driver::get().device(ordinal);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

int to_int(std::uint64_t value) { return static_cast<int>(value); }

/// The attributes that differ between models. False: the attribute is not one of these.
bool model_attribute(int attribute, const Device& device, int* out) {
  const Model& m = Driver::get().model();
  const CardFacts& card = Driver::get().facts(device);
  const bool hopper = m.compute_major >= 9;
  switch (attribute) {
    case 13:
      *out = to_int(m.sm_clock_mhz * 1000ULL);
      return true;
    case 16:
      *out = to_int(m.sm_count);
      return true;
    case 33:
      *out = to_int(card.pci_bus);
      return true;
    case 34:
      *out = to_int(card.pci_device);
      return true;
    case 36:
      *out = to_int(m.memory_clock_mhz * 1000ULL);
      return true;
    case 37:
      *out = to_int(m.memory_bus_bits);
      return true;
    case 38:
      *out = to_int(m.l2_bytes);
      return true;
    case 39:
      *out = to_int(m.threads_per_sm);
      return true;
    case 50:
      *out = to_int(card.pci_domain);
      return true;
    case 75:
      *out = to_int(m.compute_major);
      return true;
    case 76:
      *out = to_int(m.compute_minor);
      return true;
    case 81:
      *out = to_int(m.shared_per_sm);
      return true;
    case 87:
      *out = m.compute_major == 8 && m.compute_minor == 0 ? 2 : hopper ? 2 : 32;
      return true;
    case 97:
      *out = to_int(m.shared_per_block_max);
      return true;
    case 106:
      *out = to_int(m.blocks_per_sm);
      return true;
    case 108:
      *out = m.compute_major >= 8 ? to_int(m.l2_bytes / 4 * 3) : 0;
      return true;
    case 109:
      *out = m.compute_major >= 8 ? 128 << 20 : 0;
      return true;
    case 111:
      *out = m.compute_major >= 8 ? 1024 : 0;
      return true;
    case 120:
    case 127:
      *out = hopper ? 1 : 0;
      return true;
    case 126:
      *out = hopper ? 4 : 1;
      return true;
    case 134:
      *out = to_int(card.numa_node);
      return true;
    case 139:
      *out = static_cast<int>(m.pci_device_id);
      return true;
    case 140:
      *out = static_cast<int>(m.pci_subsystem_id);
      return true;
    default:
      return false;
  }
}

struct Attribute {
  int number;
  int value;
};

// The attributes that are the same on every simulated model. An attribute that is not listed (and is below the newest
// number) is 0: not supported.
constexpr Attribute kAttributes[] = {
    {1, 1024},       {2, 1024},    {3, 1024},   {4, 64},       {5, 2147483647},  {6, 65535},
    {7, 65535},      {8, 49152},   {9, 65536},  {10, 32},      {11, 2147483647}, {12, 65536},
    {14, 512},       {15, 1},      {19, 1},     {21, 131072},  {22, 131072},     {23, 65536},
    {24, 16384},     {25, 16384},  {26, 16384}, {27, 32768},   {28, 32768},      {29, 2048},
    {30, 512},       {31, 1},      {32, 1},     {40, 2},       {41, 1},          {42, 32768},
    {43, 2048},      {45, 32768},  {46, 32768}, {47, 8192},    {48, 8192},       {49, 32768},
    {51, 32},        {52, 32768},  {53, 32768}, {54, 2046},    {55, 32768},      {56, 131072},
    {57, 65536},     {58, 16384},  {59, 16384}, {60, 16384},   {61, 32768},      {62, 2048},
    {63, 32768},     {64, 32768},  {65, 2048},  {66, 32768},   {67, 32768},      {68, 2046},
    {69, 268435456}, {70, 131072}, {71, 65000}, {72, 2097120}, {73, 32768},      {74, 32768},
    {77, 32768},     {78, 1},      {79, 1},     {80, 1},       {82, 65536},      {83, 1},
    {89, 1},         {90, 1},      {91, 1},     {95, 1},       {96, 1},          {99, 1},
    {102, 1},        {103, 0},     {115, 1},    {121, 0},      {130, 0},         {131, -1},
};
constexpr int kNewestAttribute = 161;

}  // namespace

CU_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  CU_NEED_INIT();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::get().device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetCount(int* count) {
  CU_NEED_INIT();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = Driver::get().device_count();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string_view text = Driver::get().model().name;
  std::snprintf(name, static_cast<std::size_t>(length), "%.*s", static_cast<int>(text.size()),
                text.data());
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, Driver::get().facts(*device).uuid_bytes, 16);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  return cuDeviceGetUuid_v2(uuid, dev);
}

CU_EXPORT CUresult cuDeviceGetLuid(char* luid, unsigned* mask, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  (void)luid;
  (void)mask;
  return CUDA_ERROR_NOT_SUPPORTED;  // Windows only
}

CU_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = Driver::get().model().memory_bytes - Driver::get().model().reserved_bytes;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice dev) {
  std::size_t wide = 0;
  const CUresult rc = cuDeviceTotalMem_v2(bytes == nullptr ? nullptr : &wide, dev);
  if (rc == CUDA_SUCCESS) *bytes = narrow(wide);
  return rc;
}

CU_EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (value == nullptr || attribute <= 0 || attribute > kNewestAttribute)
    return CUDA_ERROR_INVALID_VALUE;
  if (model_attribute(attribute, *device, value)) return CUDA_SUCCESS;
  *value = 0;
  for (const Attribute& row : kAttributes)
    if (row.number == attribute) *value = row.value;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = {1024,
           {1024, 1024, 64},
           {2147483647, 65535, 65535},
           49152,
           65536,
           32,
           2147483647,
           65536,
           to_int(Driver::get().model().sm_clock_mhz * 1000ULL),
           512};
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = to_int(Driver::get().model().compute_major);
  *minor = to_int(Driver::get().model().compute_minor);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (text == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
  const CardFacts& card = Driver::get().facts(*device);
  std::snprintf(text, static_cast<std::size_t>(length), "%04x:%02x:%02x.0", card.pci_domain,
                card.pci_bus, card.pci_device);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* text) {
  CU_NEED_INIT();
  if (dev == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
      (domain = 0, std::sscanf(text, "%x:%x", &bus, &slot) != 2))
    return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < Driver::get().device_count(); ++i) {
    const CardFacts& card = Driver::get().facts(*Driver::get().device(i));
    if (card.pci_domain == domain && card.pci_bus == bus && card.pci_device == slot) {
      *dev = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CU_EXPORT CUresult cuDeviceGetExecAffinitySupport(int* value, int type, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  (void)type;
  *value = 0;  // no MPS
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  Device* a = nullptr;
  Device* b = nullptr;
  if (const CUresult rc = find(dev, &a); rc != CUDA_SUCCESS) return rc;
  if (const CUresult rc = find(peer, &b); rc != CUDA_SUCCESS) return rc;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can =
      a != b && link_between(Driver::get().machine(), a->card, b->card) != Link::kOtherNode ? 1 : 0;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice dev, CUdevice peer) {
  int can = 0;
  if (const CUresult rc = cuDeviceCanAccessPeer(&can, dev, peer); rc != CUDA_SUCCESS) return rc;
  if (value == nullptr || attribute < 1 || attribute > 5 || dev == peer)
    return dev == peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  const bool nvlink = Driver::get().model().nvlink_links > 0;
  switch (attribute) {
    case 1:
      *value = nvlink ? 0 : 1;
      break;
    case 2:
    case 4:
      *value = can;
      break;
    case 3:
      *value = can != 0 && nvlink ? 1 : 0;
      break;
    default:
      *value = 0;
      break;
  }
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
