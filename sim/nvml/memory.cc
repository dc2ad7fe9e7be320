// Memory use, per card and per process.
#include <vector>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

// The memory that is free for processes. The reserved part is neither used nor free in the second form, and part of
// "used" in the first (as in driver 510 and later).
std::uint64_t free_bytes(const MemoryUse& m) {
  const std::uint64_t taken = m.reserved + m.used;
  return taken < m.total ? m.total - taken : 0;
}

// A 16-byte or 24-byte record per process. The rule of all these calls: `count` is the capacity on input and the number
// of processes on output. A capacity that is too small returns kInsufficientSize; a null array only queries the number.
template <class Record, class Make>
Return list_processes(Device device, unsigned* count, Record* out, Make make) {
  return on_card(device, [&](const Here& h) -> Return {
    if (count == nullptr) return kInvalidArgument;
    std::vector<ProcessUse> found;
    if (Return r = h.session.processes(h.card, &found); r != kSuccess) return r;
    const unsigned capacity = out == nullptr ? 0 : *count;
    *count = static_cast<unsigned>(found.size());
    if (found.size() > capacity) return kInsufficientSize;
    for (std::size_t i = 0; i < found.size(); ++i) out[i] = make(found[i]);
    return kSuccess;
  });
}

ProcessV1 first_form(const ProcessUse& p) { return {p.pid, p.bytes}; }
ProcessV2 later_form(const ProcessUse& p) { return {p.pid, p.bytes, kNoInstance, kNoInstance}; }

// The simulated card runs compute processes only.
Return none(Device device, unsigned* count) {
  return on_card(device, [&](const Here&) { return put(count, 0); });
}

}  // namespace

CARVE_NVML_EXPORT Return nvmlDeviceGetMemoryInfo(Device device, Memory* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    MemoryUse m;
    if (Return r = h.session.memory(h.card, &m); r != kSuccess) return r;
    *out = {m.total, free_bytes(m), m.total - free_bytes(m)};
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    if (out->version != struct_version<MemoryV2>(2)) return kVersionMismatch;
    MemoryUse m;
    if (Return r = h.session.memory(h.card, &m); r != kSuccess) return r;
    out->total = m.total;
    out->reserved = m.reserved;
    out->free = free_bytes(m);
    out->used = m.used;
    return kSuccess;
  });
}

// The window through which the host reaches the card's memory (BAR1): as large as the card, rounded up to a power of
// two as PCIe requires. A mapping per process is not simulated.
CARVE_NVML_EXPORT Return nvmlDeviceGetBAR1MemoryInfo(Device device, Bar1Memory* out) {
  constexpr std::uint64_t kUsed = 1ULL << 20;
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    std::uint64_t total = 256ULL << 20;
    while (total < h.model.memory_bytes) total <<= 1;
    *out = {total, total - kUsed, kUsed};
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count,
                                                              ProcessV1* out) {
  return list_processes(device, count, out, first_form);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count,
                                                                 ProcessV2* out) {
  return list_processes(device, count, out, later_form);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count,
                                                                 ProcessV2* out) {
  return list_processes(device, count, out, later_form);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses(Device device, unsigned* count,
                                                               ProcessV1*) {
  return none(device, count);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses_v2(Device device, unsigned* count,
                                                                  ProcessV2*) {
  return none(device, count);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned* count,
                                                                  ProcessV2*) {
  return none(device, count);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses(Device device, unsigned* count,
                                                                 ProcessV1*) {
  return none(device, count);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses_v2(Device device,
                                                                    unsigned* count, ProcessV2*) {
  return none(device, count);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device,
                                                                    unsigned* count, ProcessV2*) {
  return none(device, count);
}

CARVE_NVML_EXPORT Return nvmlDeviceGetRunningProcessDetailList(Device device,
                                                               ProcessDetailList* list) {
  constexpr std::uint32_t kCompute = 0, kLastMode = 2;
  if (list == nullptr) return kInvalidArgument;
  if (list->version != struct_version<ProcessDetailList>(1)) return kVersionMismatch;
  if (list->mode > kLastMode) return kInvalidArgument;
  if (list->mode != kCompute) return none(device, &list->count);
  return list_processes(device, &list->count, list->entries, [](const ProcessUse& p) {
    return ProcessDetail{p.pid, p.bytes, kNoInstance, kNoInstance, 0};
  });
}

}  // namespace carve::sim::nvml
