// Which cards exist and what each one is: facts that do not change while the driver runs.
#include <cstdio>
#include <string>

#include "base/mutex.h"
#include "sim/nvml/call.h"

namespace carve::sim::nvml {

// Accepts "0000:65:00.0", "00000000:65:00.0" and, like the real library, "65:00" without the function.
bool same_bus(const char* text, const CardFacts& facts) {
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x", &bus, &device) != 2) return false;
  }
  return domain == facts.pci_domain && bus == facts.pci_bus && device == facts.pci_device;
}

namespace {

constexpr std::uint32_t kArchitectures[] = {6, 7, 8, 9, 10};
constexpr std::string_view kArchitectureNames[] = {"Turing", "Ampere", "Ada", "Hopper", "Blackwell"};
constexpr std::uint32_t kUnknownArchitecture = 0xFFFFFFFF;
constexpr std::uint32_t kBrandTesla = 2, kBrandNvidia = 14;
constexpr std::uint32_t kBusPcie = 2;

Return handle_if(Device* out, auto matches) {
  Library& lib = library();
  const MutexLock lock(lib.mutex);
  if (lib.users == 0) return kUninitialized;
  if (out == nullptr) return kInvalidArgument;
  Session* session = nullptr;
  if (Return r = live_session(lib, &session); r != kSuccess) return r;
  for (unsigned i = 0; i < lib.visible; ++i) {
    if (!matches(lib.handles[i], session->machine().cards[lib.handles[i].minor])) continue;
    if (Return r = session->state(lib.handles[i]); r != kSuccess) return r;
    *out = &lib.handles[i];
    return kSuccess;
  }
  return kNotFound;
}

Return handle_by_index(unsigned index, Device* out) {
  const Return r = handle_if(out, [&](const Card& card, const CardFacts&) {
    return card.index == index;
  });
  return r == kNotFound ? kInvalidArgument : r;
}

Return handle_by_bus(const char* text, Device* out) {
  if (text == nullptr) return kInvalidArgument;
  return handle_if(out, [&](const Card&, const CardFacts& f) { return same_bus(text, f); });
}

void write_bus(char (&out)[16], const CardFacts& f) {
  std::snprintf(out, sizeof out, "%04X:%02X:%02X.0", f.pci_domain & 0xFFFF, f.pci_bus & 0xFF,
                f.pci_device & 0x1F);
}
void write_bus(char (&out)[32], const CardFacts& f) {
  std::snprintf(out, sizeof out, "%08X:%02X:%02X.0", f.pci_domain, f.pci_bus, f.pci_device);
}

bool can_partition(const Model& model) {
  constexpr std::uint32_t kNarrowestHbm = 2048;  // the narrowest bus of the simulated models with HBM
  return model.compute_major >= 8 && model.memory_bus_bits >= kNarrowestHbm;
}

Return count(unsigned* out) {
  return on_library([&](Session& session) { return put(out, session.cards().size()); });
}

}  // namespace

CARVE_NVML_EXPORT Return nvmlDeviceGetCount(unsigned* out) { return count(out); }
CARVE_NVML_EXPORT Return nvmlDeviceGetCount_v2(unsigned* out) { return count(out); }
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleByIndex(unsigned index, Device* out) {
  return handle_by_index(index, out);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  return handle_by_index(index, out);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleBySerial(const char* text, Device* out) {
  if (text == nullptr) return kInvalidArgument;
  return handle_if(out, [&](const Card&, const CardFacts& f) {
    return std::string_view(text) == f.serial;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleByUUID(const char* text, Device* out) {
  if (text == nullptr) return kInvalidArgument;
  return handle_if(out, [&](const Card&, const CardFacts& f) {
    return std::string_view(text) == f.uuid;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleByUUIDV(const Uuid* uuid, Device* out) {
  constexpr std::uint32_t kText = 1, kBytes = 2;
  if (uuid == nullptr) return kInvalidArgument;
  if (uuid->version != struct_version<Uuid>(1)) return kVersionMismatch;
  if (uuid->type != kText && uuid->type != kBytes) return kInvalidArgument;
  return handle_if(out, [&](const Card&, const CardFacts& f) {
    if (uuid->type == kBytes) return std::memcmp(uuid->bytes, f.uuid_bytes, 16) == 0;
    return std::strncmp(uuid->text, f.uuid, sizeof uuid->text) == 0;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId(const char* text, Device* out) {
  return handle_by_bus(text, out);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char* text, Device* out) {
  return handle_by_bus(text, out);
}

CARVE_NVML_EXPORT Return nvmlDeviceGetName(Device device, char* out, unsigned length) {
  return on_card(device, [&](const Here& h) { return put_text(out, length, h.model.name); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetUUID(Device device, char* out, unsigned length) {
  return on_card(device, [&](const Here& h) { return put_text(out, length, h.facts.uuid); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetSerial(Device device, char* out, unsigned length) {
  return on_card(device, [&](const Here& h) { return put_text(out, length, h.facts.serial); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetBoardPartNumber(Device device, char* out, unsigned length) {
  return on_card(device, [&](const Here&) { return put_text(out, length, "SIM-00000-0000-000"); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetVbiosVersion(Device device, char* out, unsigned length) {
  return on_card(device, [&](const Here&) { return put_text(out, length, "00.00.00.00.51"); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetInforomImageVersion(Device device, char* out,
                                                          unsigned length) {
  return on_card(device, [&](const Here&) { return put_text(out, length, "G000.0000.00.00"); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetInforomVersion(Device device, int object, char* out,
                                                     unsigned length) {
  return on_card(device, [&](const Here&) -> Return {
    if (object < 0 || object > 2) return kInvalidArgument;
    return put_text(out, length, "0.0");
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGspFirmwareVersion(Device device, char* out) {
  constexpr unsigned kBuffer = 64;  // the interface fixes the size of the caller's buffer
  return on_card(device, [&](const Here&) { return put_text(out, kBuffer, kDriverVersionText); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGspFirmwareMode(Device device, unsigned* enabled,
                                                      unsigned* by_default) {
  return on_card(device, [&](const Here&) -> Return {
    if (enabled == nullptr || by_default == nullptr) return kInvalidArgument;
    *enabled = *by_default = 1;
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetIndex(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.card.index; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMinorNumber(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.card.minor; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetModuleId(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.card.minor + 1; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetBrand(Device device, std::uint32_t* out) {
  return card_value(device, out, [](const Here& h) {
    return h.model.name.starts_with("Tesla") ? kBrandTesla : kBrandNvidia;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetBoardId(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.facts.pci_bus << 8; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMultiGpuBoard(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetBusType(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return kBusPcie; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetArchitecture(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) {
    for (unsigned i = 0; i < std::size(kArchitectures); ++i) {
      if (h.model.architecture == kArchitectureNames[i]) return kArchitectures[i];
    }
    return kUnknownArchitecture;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return on_card(device, [&](const Here& h) -> Return {
    if (major == nullptr || minor == nullptr) return kInvalidArgument;
    *major = static_cast<int>(h.model.compute_major);
    *minor = static_cast<int>(h.model.compute_minor);
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNumGpuCores(Device device, unsigned* out) {
  return card_value(device, out,
                    [](const Here& h) { return h.model.sm_count * h.model.cores_per_sm; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMemoryBusWidth(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.memory_bus_bits; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetIrqNum(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return 64 + h.card.minor; });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    PciInfo info = {{},  h.facts.pci_domain,    h.facts.pci_bus,           h.facts.pci_device,
                    h.model.pci_device_id, h.model.pci_subsystem_id, {}};
    write_bus(info.bus_id_legacy, h.facts);
    write_bus(info.bus_id, h.facts);
    *out = info;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPciInfo_v2(Device device, PciInfoV2* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    PciInfoV2 info = {{},  h.facts.pci_domain,    h.facts.pci_bus,           h.facts.pci_device,
                      h.model.pci_device_id, h.model.pci_subsystem_id, {}};
    write_bus(info.bus_id, h.facts);
    *out = info;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPciInfo(Device device, PciInfoV1* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    PciInfoV1 info = {{}, h.facts.pci_domain, h.facts.pci_bus, h.facts.pci_device,
                      h.model.pci_device_id};
    write_bus(info.bus_id, h.facts);
    *out = info;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPciInfoExt(Device device, PciInfoExt* out) {
  constexpr std::uint32_t kDisplayController = 3, k3d = 2;
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    if (out->version != struct_version<PciInfoExt>(1)) return kVersionMismatch;
    out->domain = h.facts.pci_domain;
    out->bus = h.facts.pci_bus;
    out->device = h.facts.pci_device;
    out->device_id = h.model.pci_device_id;
    out->subsystem_id = h.model.pci_subsystem_id;
    out->base_class = kDisplayController;
    out->sub_class = k3d;
    write_bus(out->bus_id, h.facts);
    return kSuccess;
  });
}

// Modes: a data-centre card without a display, with persistence mode, without MIG and virtualisation.
CARVE_NVML_EXPORT Return nvmlDeviceGetPersistenceMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 1; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetDisplayMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetDisplayActive(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetComputeMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetAccountingMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetVirtualizationMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceIsMigDeviceHandle(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
// Cards that support MIG report that it is off. Creating MIG devices is not simulated.
CARVE_NVML_EXPORT Return nvmlDeviceGetMigMode(Device device, unsigned* now, unsigned* pending) {
  return on_card(device, [&](const Here& h) -> Return {
    if (now == nullptr || pending == nullptr) return kInvalidArgument;
    if (!can_partition(h.model)) return kNotSupported;
    *now = *pending = 0;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return can_partition(h.model) ? 7 : 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetAttributes_v2(Device device, Attributes* out) {
  constexpr std::uint32_t kCopyEngines = 3, kDecoders = 7, kJpegs = 7;
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    *out = {h.model.sm_count, kCopyEngines, kDecoders, 0, kJpegs, 1, 0, 0,
            h.model.memory_bytes >> 20};
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetAttributes(Device device, Attributes* out) {
  return nvmlDeviceGetAttributes_v2(device, out);
}

}  // namespace carve::sim::nvml
