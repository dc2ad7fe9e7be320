#include "preload/export.h"
#include "preload/driver.h"
#include "preload/memory.h"
#include "preload/meter.h"

// All calls that take time on a card. The hooks are generated from the table's rows: each asks the launch gate, calls
// the driver and reports the result to the gate. Cost in an unlimited slice: one load and one branch.
using namespace carve::preload;

namespace {

struct Where {
  CUstream stream;
  bool per_thread;
};

/// The stream of a legacy call, and the stream of a call with the per-thread default stream.
Where legacy(CUstream stream) { return {stream, false}; }
Where own(CUstream stream) { return {stream == nullptr ? per_thread_stream() : stream, true}; }

/// The key of a duration: the function and the size of the grid, in powers of two. Graphs have their own key.
std::uint64_t grid_key(CUfunction function, std::uint64_t blocks) {
  const auto bucket = blocks == 0 ? 0U : 64U - static_cast<unsigned>(__builtin_clzll(blocks));
  return reinterpret_cast<std::uint64_t>(function) * 64 + bucket;
}
/// Adds the other parameters that determine how long a launch takes: threads per block, dynamic shared memory and the
/// cluster size. The last two reduce how many blocks run at a time. The odd factors keep different launches distinct;
/// the table of durations mixes the bits.
std::uint64_t launch_key(CUfunction function, std::uint64_t blocks, std::uint64_t threads, std::uint64_t shared) {
  return grid_key(function, blocks) + threads * 0x9E3779B97F4A7C15ULL + shared * 0xC2B2AE3D27D4EB4FULL;
}
std::uint64_t launch_key(CUfunction function, const CUlaunchConfig* config) {
  if (config == nullptr) {
    return grid_key(function, 0);  // the driver refuses it
  }
  std::uint64_t key = launch_key(
      function, std::uint64_t{config->grid_dim_x} * config->grid_dim_y * config->grid_dim_z,
      std::uint64_t{config->block_dim_x} * config->block_dim_y * config->block_dim_z, config->shared_mem_bytes);
  for (unsigned i = 0; config->attrs != nullptr && i < config->num_attrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& cluster = attribute.value.cluster;
      key += std::uint64_t{cluster.x} * cluster.y * cluster.z * 0x165667B19E3779F9ULL;
    }
  }
  return key;
}
std::uint64_t copy_key(std::uint64_t bytes) {
  return bytes == 0 ? 1 : 2U + (64U - static_cast<unsigned>(__builtin_clzll(bytes)));
}
std::uint64_t area(int width, int height) {
  return static_cast<std::uint64_t>(width < 0 ? 0 : width) * static_cast<std::uint64_t>(height < 0 ? 0 : height);
}
CUstream stream_of(const CUlaunchConfig* config) { return config == nullptr ? nullptr : config->stream; }

template <class Call>
CUresult metered(std::uint64_t work, Where where, Call call) {
  if (duty() == Duty::kUnknown) {
    return refusal();
  }
  if (duty() == Duty::kNone) {
    return call();
  }
  Ticket ticket{};
  const CUresult refused = begin_work(work, where.stream, where.per_thread, ticket);
  if (refused != CUDA_SUCCESS) {
    return refused;
  }
  const CUresult result = call();
  end_work(ticket, result);
  return result;
}

}  // namespace

#define HOOK(symbol, kind)
#define GATE(symbol, kind, params, args, stream, work) CARVE_EXPORT CUresult symbol params;
#include "preload/hooks_cuda.def"
#undef GATE

// Two functions with the same signature, so that both exits of the hook are jumps and the arguments stay in place.
#define GATE(symbol, kind, params, args, stream, work)                                          \
  static __attribute__((noinline)) CUresult metered_##symbol params {                           \
    return metered(work, stream, [&] { return CARVE_DRIVER(symbol) args; });                    \
  }                                                                                             \
  CARVE_EXPORT CUresult symbol params {                                                         \
    if (__builtin_expect(known_duty() == Duty::kNone, 1)) {                                     \
      return CARVE_DRIVER(symbol) args;                                                         \
    }                                                                                           \
    return metered_##symbol args;                                                               \
  }
#include "preload/hooks_cuda.def"
#undef HOOK
#undef GATE

CARVE_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                                           unsigned flags) {
  const Duty now = duty();
  if (now != Duty::kMeter || launches == nullptr || count == 0) {
    return now == Duty::kUnknown ? refusal()
                                 : CARVE_DRIVER(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
  }
  // One operation for all its cards. It passes only the launch gate of the current card, because the cards of one slice
  // are granted together.
  const std::uint64_t blocks =
      std::uint64_t{launches->grid_dim_x} * launches->grid_dim_y * launches->grid_dim_z;
  const std::uint64_t threads =
      std::uint64_t{launches->block_dim_x} * launches->block_dim_y * launches->block_dim_z;
  return metered(launch_key(launches->function, blocks, threads, launches->shared_mem_bytes), legacy(launches->stream),
                 [=] { return CARVE_DRIVER(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags); });
}

#define CARVE_SYNC(symbol, params, args)                  \
  CARVE_EXPORT CUresult symbol params {                   \
    if (duty() == Duty::kUnknown) {                       \
      return refusal();                                   \
    }                                                     \
    before_wait();                                        \
    const CUresult result = CARVE_DRIVER(symbol) args;    \
    after_wait();                                         \
    return result;                                        \
  }
CARVE_SYNC(cuStreamSynchronize, (CUstream s), (s))
CARVE_SYNC(cuStreamSynchronize_ptsz, (CUstream s), (s))
CARVE_SYNC(cuCtxSynchronize, (), ())
CARVE_SYNC(cuCtxSynchronize_v2, (CUcontext c), (c))
CARVE_SYNC(cuEventSynchronize, (CUevent e), (e))
CARVE_SYNC(cuMemcpyDtoH_v2, (void* d, CUdeviceptr s, std::size_t n), (d, s, n))
CARVE_SYNC(cuMemcpyDtoH_v2_ptds, (void* d, CUdeviceptr s, std::size_t n), (d, s, n))

CARVE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  if (duty() == Duty::kUnknown) {
    return refusal();
  }
  before_stream_ends(stream);
  const HoldAlone change(memory.capture_lock);  // the stream may be capturing
  return CARVE_DRIVER(cuStreamDestroy_v2)(stream);
}
CARVE_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  if (duty() == Duty::kUnknown) {
    return refusal();
  }
  before_stream_ends(stream);
  const HoldAlone change(memory.capture_lock);  // the stream may be capturing
  return CARVE_DRIVER(cuStreamDestroy)(stream);
}
