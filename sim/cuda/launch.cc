#include "sim/cuda/launch.h"

#include <cstring>

#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"

namespace carve::sim::cu {
namespace {

std::atomic<bool> g_said_nothing{false};

// cuLaunchKernel's `extra`: pairs, ended by 0.
constexpr std::uintptr_t kExtraEnd = 0;
constexpr std::uintptr_t kExtraBuffer = 1;

/// Pointers to the arguments in a packed buffer.
std::vector<void*> spread(const KernelCall& call, unsigned char* packed) {
  std::vector<void*> out;
  for (const KernelParameter& parameter : call.function->parameters)
    out.push_back(packed + parameter.offset);
  return out;
}

void* packed_in(void** extra) {
  for (; extra != nullptr && reinterpret_cast<std::uintptr_t>(extra[0]) != kExtraEnd; extra += 2)
    if (reinterpret_cast<std::uintptr_t>(extra[0]) == kExtraBuffer) return extra[1];
  return nullptr;
}

}  // namespace

CUresult check(const KernelCall& call) {
  if (checked_function(call.function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned(&g)[3] = call.grid;
  const unsigned(&b)[3] = call.block;
  if (g[0] == 0 || g[1] == 0 || g[2] == 0 || b[0] == 0 || b[1] == 0 || b[2] == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (g[0] > 2147483647U || g[1] > 65535 || g[2] > 65535 || b[0] > 1024 || b[1] > 1024 ||
      b[2] > 64 || b[0] * b[1] * b[2] > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  if (call.shared > static_cast<unsigned>(call.function->max_dynamic_shared))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

void keep_arguments(KernelCall* call, void** parameters, void** extra) {
  const auto& list = call->function->parameters;
  if (list.empty()) return;
  call->arguments.resize(list.back().offset + list.back().size);
  if (parameters != nullptr) {
    for (std::size_t i = 0; i < list.size(); ++i)
      std::memcpy(call->arguments.data() + list[i].offset, parameters[i], list[i].size);
  } else if (const void* packed = packed_in(extra); packed != nullptr) {
    std::memcpy(call->arguments.data(), packed, call->arguments.size());
  }
}

void compute(const KernelCall& call) {
  const Function& function = *call.function;
  if (function.compute == nullptr) {
    say_once(&g_said_nothing,
             "only the sample kernels compute; any other kernel takes its time and computes nothing (SIMULATED)");
    return;
  }
  const std::uint64_t threads = std::uint64_t{call.grid[0]} * call.grid[1] * call.grid[2] *
                                call.block[0] * call.block[1] * call.block[2];
  if (call.parameters != nullptr) return function.compute(threads, call.parameters);
  if (call.arguments.empty()) return;
  KernelCall copy = call;
  std::vector<void*> pointers = spread(copy, copy.arguments.data());
  function.compute(threads, pointers.data());
}

CUresult launch(Stream* stream, KernelCall& call, void** parameters, void** extra) {
  if (const CUresult rc = check(call); rc != CUDA_SUCCESS) return rc;
  if (stream->capture.load(std::memory_order_relaxed) != nullptr) {
    keep_arguments(&call, parameters, extra);
    NodeBody body;
    body.kind = NodeKind::kKernel;
    body.kernel = call;
    return capture_node(stream, body);
  }
  if (const CUresult rc = refuse_implicit(stream); rc != CUDA_SUCCESS) return rc;
  if (parameters != nullptr && stream->host_pending.load(std::memory_order_relaxed) == 0) {
    call.parameters = parameters;
    compute(call);
  } else {
    keep_arguments(&call, parameters, extra);
    in_order(stream, [call] { compute(call); });
  }
  submit(stream, CommandKind::kCompute, duration_of(*call.function, call.grid, call.block), 0, 1);
  return CUDA_SUCCESS;
}

namespace {

CUresult launch_plain(CUfunction f, const unsigned (&grid)[3], const unsigned (&block)[3],
                      unsigned shared, CUstream handle, void** parameters, void** extra,
                      std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  KernelCall call;
  call.function = f;
  for (int i = 0; i < 3; ++i) {
    call.grid[i] = grid[i];
    call.block[i] = block[i];
  }
  call.shared = shared;
  return launch(stream, call, parameters, extra);
}

CUresult launch_config(const CUlaunchConfig* c, CUfunction f, void** parameters, void** extra,
                       std::uintptr_t zero) {
  CU_NEED_INIT();
  if (c == nullptr || (c->numAttrs > 0 && c->attrs == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return launch_plain(f, {c->gridDimX, c->gridDimY, c->gridDimZ},
                      {c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes, c->hStream,
                      parameters, extra, zero);
}

/// All blocks of a cooperative launch must be resident at the same time.
CUresult check_cooperative(unsigned blocks, unsigned threads) {
  const Model& model = Driver::get().model();
  const unsigned per_sm = threads == 0 ? 0 : model.threads_per_sm / threads;
  return blocks > per_sm * model.sm_count ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

CUresult launch_cooperative(CUfunction f, const unsigned (&grid)[3], const unsigned (&block)[3],
                            unsigned shared, CUstream handle, void** parameters,
                            std::uintptr_t zero) {
  CU_NEED_INIT();
  const CUresult rc =
      check_cooperative(grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]);
  return rc != CUDA_SUCCESS
             ? rc
             : launch_plain(f, grid, block, shared, handle, parameters, nullptr, zero);
}

}  // namespace

#define CU_LAUNCH_ARGS                                                                         \
  (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
   unsigned shared, CUstream s, void** parameters, void** extra)
CU_EXPORT CUresult cuLaunchKernel CU_LAUNCH_ARGS {
  return launch_plain(f, {gx, gy, gz}, {bx, by, bz}, shared, s, parameters, extra, kStreamLegacy);
}
CU_EXPORT CUresult cuLaunchKernel_ptsz CU_LAUNCH_ARGS {
  return launch_plain(f, {gx, gy, gz}, {bx, by, bz}, shared, s, parameters, extra,
                      kStreamPerThread);
}

CU_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** parameters,
                                    void** extra) {
  return launch_config(c, f, parameters, extra, kStreamLegacy);
}
CU_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* c, CUfunction f, void** parameters,
                                         void** extra) {
  return launch_config(c, f, parameters, extra, kStreamPerThread);
}

#define CU_COOPERATIVE_ARGS                                                                    \
  (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
   unsigned shared, CUstream s, void** parameters)
CU_EXPORT CUresult cuLaunchCooperativeKernel CU_COOPERATIVE_ARGS {
  return launch_cooperative(f, {gx, gy, gz}, {bx, by, bz}, shared, s, parameters, kStreamLegacy);
}
CU_EXPORT CUresult cuLaunchCooperativeKernel_ptsz CU_COOPERATIVE_ARGS {
  return launch_cooperative(f, {gx, gy, gz}, {bx, by, bz}, shared, s, parameters, kStreamPerThread);
}

CU_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list, unsigned n,
                                                        unsigned) {
  CU_NEED_INIT();
  if (list == nullptr || n == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < n; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    if (reinterpret_cast<std::uintptr_t>(p.hStream) <= kStreamPerThread)
      return CUDA_ERROR_INVALID_VALUE;
    const CUresult rc = launch_cooperative(
        p.function, {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
        p.sharedMemBytes, p.hStream, p.kernelParams, kStreamLegacy);
    if (rc != CUDA_SUCCESS) return rc;
  }
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
