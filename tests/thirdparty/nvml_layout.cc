// Compiled, never run: compares our NVML layouts (sim/nvml/nvml_abi.h) with NVIDIA's header, which the test installs. A
// struct that the older header lacks is compared with the newer one only.
#include <nvml.h>

#include <cstddef>

#include "sim/nvml/gpm_abi.h"
#include "sim/nvml/nvml_abi.h"

namespace ours = carve::sim::nvml;

#define CARVE_SAME_SIZE(a, b) static_assert(sizeof(ours::a) == sizeof(b))
#define CARVE_SAME_PLACE(a, x, b, y) static_assert(offsetof(ours::a, x) == offsetof(b, y))

static_assert(ours::kNotSupported == NVML_ERROR_NOT_SUPPORTED);
static_assert(ours::kInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(ours::kDriverNotLoaded == NVML_ERROR_DRIVER_NOT_LOADED);
static_assert(ours::kVersionMismatch == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
static_assert(ours::kNotFound == NVML_ERROR_NOT_FOUND && ours::kTimeout == NVML_ERROR_TIMEOUT);
static_assert(ours::kGpuIsLost == NVML_ERROR_GPU_IS_LOST && ours::kUnknown == NVML_ERROR_UNKNOWN);
static_assert(ours::kUninitialized == NVML_ERROR_UNINITIALIZED);
static_assert(ours::kInvalidArgument == NVML_ERROR_INVALID_ARGUMENT);
static_assert(ours::struct_version<ours::MemoryV2>(2) == nvmlMemory_v2);

CARVE_SAME_SIZE(Memory, nvmlMemory_t);
CARVE_SAME_PLACE(Memory, total, nvmlMemory_t, total);
CARVE_SAME_PLACE(Memory, free, nvmlMemory_t, free);
CARVE_SAME_PLACE(Memory, used, nvmlMemory_t, used);
CARVE_SAME_SIZE(MemoryV2, nvmlMemory_v2_t);
CARVE_SAME_PLACE(MemoryV2, version, nvmlMemory_v2_t, version);
CARVE_SAME_PLACE(MemoryV2, total, nvmlMemory_v2_t, total);
CARVE_SAME_PLACE(MemoryV2, reserved, nvmlMemory_v2_t, reserved);
CARVE_SAME_PLACE(MemoryV2, free, nvmlMemory_v2_t, free);
CARVE_SAME_PLACE(MemoryV2, used, nvmlMemory_v2_t, used);
CARVE_SAME_SIZE(PciInfo, nvmlPciInfo_t);
CARVE_SAME_PLACE(PciInfo, bus_id_legacy, nvmlPciInfo_t, busIdLegacy);
CARVE_SAME_PLACE(PciInfo, domain, nvmlPciInfo_t, domain);
CARVE_SAME_PLACE(PciInfo, bus, nvmlPciInfo_t, bus);
CARVE_SAME_PLACE(PciInfo, device, nvmlPciInfo_t, device);
CARVE_SAME_PLACE(PciInfo, device_id, nvmlPciInfo_t, pciDeviceId);
CARVE_SAME_PLACE(PciInfo, subsystem_id, nvmlPciInfo_t, pciSubSystemId);
CARVE_SAME_PLACE(PciInfo, bus_id, nvmlPciInfo_t, busId);
CARVE_SAME_SIZE(PciInfoExt, nvmlPciInfoExt_v1_t);
CARVE_SAME_PLACE(PciInfoExt, device_id, nvmlPciInfoExt_v1_t, pciDeviceId);
CARVE_SAME_PLACE(PciInfoExt, base_class, nvmlPciInfoExt_v1_t, baseClass);
CARVE_SAME_PLACE(PciInfoExt, sub_class, nvmlPciInfoExt_v1_t, subClass);
CARVE_SAME_PLACE(PciInfoExt, bus_id, nvmlPciInfoExt_v1_t, busId);
CARVE_SAME_SIZE(Bar1Memory, nvmlBAR1Memory_t);
CARVE_SAME_PLACE(Bar1Memory, total, nvmlBAR1Memory_t, bar1Total);
CARVE_SAME_PLACE(Bar1Memory, free, nvmlBAR1Memory_t, bar1Free);
CARVE_SAME_PLACE(Bar1Memory, used, nvmlBAR1Memory_t, bar1Used);
CARVE_SAME_SIZE(ProcessV1, nvmlProcessInfo_v1_t);
CARVE_SAME_PLACE(ProcessV1, pid, nvmlProcessInfo_v1_t, pid);
CARVE_SAME_PLACE(ProcessV1, used, nvmlProcessInfo_v1_t, usedGpuMemory);
CARVE_SAME_SIZE(ProcessV2, nvmlProcessInfo_v2_t);
CARVE_SAME_PLACE(ProcessV2, pid, nvmlProcessInfo_v2_t, pid);
CARVE_SAME_PLACE(ProcessV2, used, nvmlProcessInfo_v2_t, usedGpuMemory);
CARVE_SAME_PLACE(ProcessV2, gpu_instance, nvmlProcessInfo_v2_t, gpuInstanceId);
CARVE_SAME_PLACE(ProcessV2, compute_instance, nvmlProcessInfo_v2_t, computeInstanceId);
CARVE_SAME_SIZE(ProcessDetail, nvmlProcessDetail_v1_t);
CARVE_SAME_PLACE(ProcessDetail, pid, nvmlProcessDetail_v1_t, pid);
CARVE_SAME_PLACE(ProcessDetail, used, nvmlProcessDetail_v1_t, usedGpuMemory);
CARVE_SAME_PLACE(ProcessDetail, used_protected, nvmlProcessDetail_v1_t, usedGpuCcProtectedMemory);
CARVE_SAME_SIZE(ProcessDetailList, nvmlProcessDetailList_v1_t);
CARVE_SAME_PLACE(ProcessDetailList, version, nvmlProcessDetailList_v1_t, version);
CARVE_SAME_PLACE(ProcessDetailList, mode, nvmlProcessDetailList_v1_t, mode);
CARVE_SAME_PLACE(ProcessDetailList, count, nvmlProcessDetailList_v1_t, numProcArrayEntries);
CARVE_SAME_PLACE(ProcessDetailList, entries, nvmlProcessDetailList_v1_t, procArray);
CARVE_SAME_SIZE(Utilization, nvmlUtilization_t);
CARVE_SAME_PLACE(Utilization, gpu, nvmlUtilization_t, gpu);
CARVE_SAME_PLACE(Utilization, memory, nvmlUtilization_t, memory);
CARVE_SAME_SIZE(ProcessUtilizationSample, nvmlProcessUtilizationSample_t);
CARVE_SAME_PLACE(ProcessUtilizationSample, pid, nvmlProcessUtilizationSample_t, pid);
CARVE_SAME_PLACE(ProcessUtilizationSample, time_us, nvmlProcessUtilizationSample_t, timeStamp);
CARVE_SAME_PLACE(ProcessUtilizationSample, sm, nvmlProcessUtilizationSample_t, smUtil);
CARVE_SAME_PLACE(ProcessUtilizationSample, memory, nvmlProcessUtilizationSample_t, memUtil);
CARVE_SAME_PLACE(ProcessUtilizationSample, encoder, nvmlProcessUtilizationSample_t, encUtil);
CARVE_SAME_PLACE(ProcessUtilizationSample, decoder, nvmlProcessUtilizationSample_t, decUtil);
CARVE_SAME_SIZE(ProcessUtilizationInfo, nvmlProcessUtilizationInfo_v1_t);
CARVE_SAME_PLACE(ProcessUtilizationInfo, time_us, nvmlProcessUtilizationInfo_v1_t, timeStamp);
CARVE_SAME_PLACE(ProcessUtilizationInfo, pid, nvmlProcessUtilizationInfo_v1_t, pid);
CARVE_SAME_PLACE(ProcessUtilizationInfo, sm, nvmlProcessUtilizationInfo_v1_t, smUtil);
CARVE_SAME_PLACE(ProcessUtilizationInfo, ofa, nvmlProcessUtilizationInfo_v1_t, ofaUtil);
CARVE_SAME_SIZE(ProcessesUtilizationInfo, nvmlProcessesUtilizationInfo_v1_t);
CARVE_SAME_PLACE(ProcessesUtilizationInfo, count, nvmlProcessesUtilizationInfo_v1_t, processSamplesCount);
CARVE_SAME_PLACE(ProcessesUtilizationInfo, last_seen_us, nvmlProcessesUtilizationInfo_v1_t, lastSeenTimeStamp);
CARVE_SAME_PLACE(ProcessesUtilizationInfo, entries, nvmlProcessesUtilizationInfo_v1_t, procUtilArray);
CARVE_SAME_SIZE(Sample, nvmlSample_t);
CARVE_SAME_PLACE(Sample, time_us, nvmlSample_t, timeStamp);
CARVE_SAME_PLACE(Sample, value, nvmlSample_t, sampleValue);
CARVE_SAME_SIZE(FieldValue, nvmlFieldValue_t);
CARVE_SAME_PLACE(FieldValue, field, nvmlFieldValue_t, fieldId);
CARVE_SAME_PLACE(FieldValue, scope, nvmlFieldValue_t, scopeId);
CARVE_SAME_PLACE(FieldValue, time_us, nvmlFieldValue_t, timestamp);
CARVE_SAME_PLACE(FieldValue, latency_us, nvmlFieldValue_t, latencyUsec);
CARVE_SAME_PLACE(FieldValue, type, nvmlFieldValue_t, valueType);
CARVE_SAME_PLACE(FieldValue, result, nvmlFieldValue_t, nvmlReturn);
CARVE_SAME_PLACE(FieldValue, value, nvmlFieldValue_t, value);
CARVE_SAME_SIZE(Attributes, nvmlDeviceAttributes_t);
CARVE_SAME_PLACE(Attributes, multiprocessors, nvmlDeviceAttributes_t, multiprocessorCount);
CARVE_SAME_PLACE(Attributes, copy_engines, nvmlDeviceAttributes_t, sharedCopyEngineCount);
CARVE_SAME_PLACE(Attributes, decoders, nvmlDeviceAttributes_t, sharedDecoderCount);
CARVE_SAME_PLACE(Attributes, encoders, nvmlDeviceAttributes_t, sharedEncoderCount);
CARVE_SAME_PLACE(Attributes, jpegs, nvmlDeviceAttributes_t, sharedJpegCount);
CARVE_SAME_PLACE(Attributes, ofas, nvmlDeviceAttributes_t, sharedOfaCount);
CARVE_SAME_PLACE(Attributes, gpu_slices, nvmlDeviceAttributes_t, gpuInstanceSliceCount);
CARVE_SAME_PLACE(Attributes, memory_mib, nvmlDeviceAttributes_t, memorySizeMB);
CARVE_SAME_SIZE(EccCounts, nvmlEccErrorCounts_t);
CARVE_SAME_PLACE(EccCounts, l1, nvmlEccErrorCounts_t, l1Cache);
CARVE_SAME_PLACE(EccCounts, register_file, nvmlEccErrorCounts_t, registerFile);
CARVE_SAME_SIZE(EccSramStatus, nvmlEccSramErrorStatus_v1_t);
CARVE_SAME_PLACE(EccSramStatus, counts, nvmlEccSramErrorStatus_v1_t, aggregateUncParity);
CARVE_SAME_PLACE(EccSramStatus, threshold_exceeded, nvmlEccSramErrorStatus_v1_t, bThresholdExceeded);
CARVE_SAME_SIZE(RowRemapperHistogram, nvmlRowRemapperHistogramValues_t);
CARVE_SAME_PLACE(RowRemapperHistogram, max, nvmlRowRemapperHistogramValues_t, max);
CARVE_SAME_PLACE(RowRemapperHistogram, none, nvmlRowRemapperHistogramValues_t, none);
CARVE_SAME_SIZE(Temperature, nvmlTemperature_v1_t);
CARVE_SAME_PLACE(Temperature, sensor, nvmlTemperature_v1_t, sensorType);
CARVE_SAME_PLACE(Temperature, celsius, nvmlTemperature_v1_t, temperature);
CARVE_SAME_SIZE(MarginTemperature, nvmlMarginTemperature_v1_t);
CARVE_SAME_PLACE(MarginTemperature, celsius, nvmlMarginTemperature_v1_t, marginTemperature);
CARVE_SAME_SIZE(EventData, nvmlEventData_t);
CARVE_SAME_PLACE(EventData, device, nvmlEventData_t, device);
CARVE_SAME_PLACE(EventData, type, nvmlEventData_t, eventType);
CARVE_SAME_PLACE(EventData, data, nvmlEventData_t, eventData);
CARVE_SAME_PLACE(EventData, gpu_instance, nvmlEventData_t, gpuInstanceId);
CARVE_SAME_SIZE(Uuid, nvmlUUID_v1_t);
CARVE_SAME_PLACE(Uuid, version, nvmlUUID_v1_t, version);
CARVE_SAME_PLACE(Uuid, type, nvmlUUID_v1_t, type);
CARVE_SAME_PLACE(Uuid, text, nvmlUUID_v1_t, value);
CARVE_SAME_SIZE(FabricInfo, nvmlGpuFabricInfo_t);
CARVE_SAME_PLACE(FabricInfo, cluster, nvmlGpuFabricInfo_t, clusterUuid);
CARVE_SAME_PLACE(FabricInfo, status, nvmlGpuFabricInfo_t, status);
CARVE_SAME_PLACE(FabricInfo, clique, nvmlGpuFabricInfo_t, cliqueId);
CARVE_SAME_PLACE(FabricInfo, state, nvmlGpuFabricInfo_t, state);
#ifdef nvmlGpuFabricInfo_v3
CARVE_SAME_SIZE(FabricInfoV, nvmlGpuFabricInfo_v3_t);
CARVE_SAME_PLACE(FabricInfoV, version, nvmlGpuFabricInfo_v3_t, version);
CARVE_SAME_PLACE(FabricInfoV, cluster, nvmlGpuFabricInfo_v3_t, clusterUuid);
CARVE_SAME_PLACE(FabricInfoV, status, nvmlGpuFabricInfo_v3_t, status);
CARVE_SAME_PLACE(FabricInfoV, state, nvmlGpuFabricInfo_v3_t, state);
CARVE_SAME_PLACE(FabricInfoV, health_mask, nvmlGpuFabricInfo_v3_t, healthMask);
CARVE_SAME_PLACE(FabricInfoV, health_summary, nvmlGpuFabricInfo_v3_t, healthSummary);
#endif
CARVE_SAME_SIZE(DriverBranch, nvmlSystemDriverBranchInfo_v1_t);
CARVE_SAME_PLACE(DriverBranch, branch, nvmlSystemDriverBranchInfo_v1_t, branch);
CARVE_SAME_SIZE(FbcStats, nvmlFBCStats_t);
CARVE_SAME_PLACE(FbcStats, sessions, nvmlFBCStats_t, sessionsCount);
CARVE_SAME_PLACE(FbcStats, average_latency, nvmlFBCStats_t, averageLatency);
static_assert(ours::kGpmVersion == NVML_GPM_METRICS_GET_VERSION && ours::kGpmVersion == NVML_GPM_SUPPORT_VERSION);
static_assert(ours::kGpmAnyTensor == NVML_GPM_METRIC_ANY_TENSOR_UTIL);
static_assert(ours::kGpmMemoryBandwidth == NVML_GPM_METRIC_DRAM_BW_UTIL);
CARVE_SAME_SIZE(GpmSupport, nvmlGpmSupport_t);
CARVE_SAME_PLACE(GpmSupport, supported, nvmlGpmSupport_t, isSupportedDevice);
CARVE_SAME_SIZE(GpmMetric, nvmlGpmMetric_t);
CARVE_SAME_PLACE(GpmMetric, result, nvmlGpmMetric_t, nvmlReturn);
CARVE_SAME_PLACE(GpmMetric, value, nvmlGpmMetric_t, value);
CARVE_SAME_PLACE(GpmMetric, info, nvmlGpmMetric_t, metricInfo);
CARVE_SAME_PLACE(GpmMetricsGet, count, nvmlGpmMetricsGet_t, numMetrics);
CARVE_SAME_PLACE(GpmMetricsGet, first, nvmlGpmMetricsGet_t, sample1);
CARVE_SAME_PLACE(GpmMetricsGet, second, nvmlGpmMetricsGet_t, sample2);
CARVE_SAME_PLACE(GpmMetricsGet, metrics, nvmlGpmMetricsGet_t, metrics);
static_assert(sizeof(ours::GpmMetricsGet) <= sizeof(nvmlGpmMetricsGet_t));
CARVE_SAME_SIZE(DynamicPstates, nvmlGpuDynamicPstatesInfo_t);
CARVE_SAME_PLACE(DynamicPstates, flags, nvmlGpuDynamicPstatesInfo_t, flags);
CARVE_SAME_PLACE(DynamicPstates, domains, nvmlGpuDynamicPstatesInfo_t, utilization);
