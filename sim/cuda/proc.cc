#include <cstring>

#include "sim/cuda/driver.h"
#include "sim/export/proc_address.h"

// cuGetProcAddress in both forms, and the private tables, which the simulated driver does not have.
namespace carve::sim::cu {
namespace {

std::atomic<bool> g_said_tables{false};
// The table that every CUDA runtime library needs to start; libcudart 13 asks for it by this id.
constexpr unsigned char kRuntimeTable[16] = {0x6B, 0xD5, 0xFB, 0x6C, 0x5B, 0xF4, 0xE7, 0x4A,
                                             0x89, 0x87, 0xD9, 0x39, 0x12, 0xFD, 0x9D, 0xF9};

}  // namespace

CU_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                       std::uint64_t flags, int* status) {
  if (name == nullptr || function == nullptr || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  const ProcAnswer answer = find_proc(name, version, flags);
  *function = answer.entry;
  if (status != nullptr) *status = static_cast<int>(answer.status);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version,
                                    std::uint64_t flags) {
  if (name == nullptr || function == nullptr || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  const ProcAnswer answer = find_proc(name, version, flags);
  if (answer.entry == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = answer.entry;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  (void)table;
  // A program that asks for another table continues without it. For example, NVRTC asks for
  // da9151d33ae6cc41a5c04f26d533e328 and compiles without it.
  if (id == nullptr || std::memcmp(id, kRuntimeTable, sizeof kRuntimeTable) != 0) return CUDA_ERROR_INVALID_VALUE;
  say_once(&g_said_tables,
           "it serves driver-API programs only: the CUDA runtime library (and PyTorch, JAX, CuPy, nvcc's default "
           "output) needs private tables of NVIDIA's own driver, which are not imitated (SIMULATED)");
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace carve::sim::cu
