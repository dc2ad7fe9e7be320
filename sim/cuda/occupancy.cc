#include <algorithm>

#include "sim/cuda/function.h"

// How many blocks of a kernel fit on a multiprocessor, by the model's threads, block slots and shared memory. The
// register use of a kernel that is not compiled is unknown, so registers never limit.
namespace carve::sim::cu {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kReservedShared = 1024;  // bytes per block that the system reserves, since Ampere
constexpr unsigned kMostThreads = 1024;

unsigned blocks_per_sm(const Function& f, unsigned threads, std::size_t dynamic_shared) {
  const Model& m = Driver::get().model();
  if (threads == 0 || threads > kMostThreads) return 0;
  const unsigned rounded = (threads + kWarp - 1) / kWarp * kWarp;
  unsigned blocks = std::min(m.blocks_per_sm, m.threads_per_sm / rounded);
  const std::size_t shared = f.static_shared + dynamic_shared;
  if (shared > m.shared_per_block_max) return 0;
  const std::size_t taken = shared + (m.compute_major >= 8 ? kReservedShared : 0);
  if (taken != 0)
    blocks = static_cast<unsigned>(std::min<std::size_t>(blocks, m.shared_per_sm / taken));
  return blocks;
}

CUresult active_blocks(int* out, CUfunction handle, int threads, std::size_t dynamic_shared) {
  CU_NEED_INIT();
  const Function* f = checked_function(handle);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<int>(blocks_per_sm(*f, static_cast<unsigned>(threads), dynamic_shared));
  return CUDA_SUCCESS;
}

CUresult best_block(int* least_grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                    std::size_t dynamic_shared, int limit) {
  CU_NEED_INIT();
  const Function* f = checked_function(handle);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (least_grid == nullptr || block == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned most =
      limit == 0 ? kMostThreads : std::min(kMostThreads, static_cast<unsigned>(limit));
  unsigned best = 0, best_threads = 0;
  for (unsigned threads = most; threads > 0;
       threads = threads > kWarp ? (threads - 1) / kWarp * kWarp : 0) {
    const std::size_t shared =
        shared_of != nullptr ? shared_of(static_cast<int>(threads)) : dynamic_shared;
    const unsigned resident = blocks_per_sm(*f, threads, shared) * threads;
    if (resident > best) {
      best = resident;
      best_threads = threads;
    }
  }
  if (best == 0) return CUDA_ERROR_INVALID_VALUE;
  *block = static_cast<int>(best_threads);
  *least_grid = static_cast<int>(best / best_threads * Driver::get().model().sm_count);
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction f, int threads,
                                                               std::size_t shared) {
  return active_blocks(out, f, threads, shared);
}
CU_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, CUfunction f,
                                                                        int threads,
                                                                        std::size_t shared,
                                                                        unsigned flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : active_blocks(out, f, threads, shared);
}
CU_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction f,
                                                    CUoccupancyB2DSize shared_of,
                                                    std::size_t shared, int limit) {
  return best_block(grid, block, f, shared_of, shared, limit);
}
CU_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction f,
                                                             CUoccupancyB2DSize shared_of,
                                                             std::size_t shared, int limit,
                                                             unsigned flags) {
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE
                   : best_block(grid, block, f, shared_of, shared, limit);
}

CU_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* out, CUfunction handle,
                                                           int blocks, int threads) {
  CU_NEED_INIT();
  const Function* f = checked_function(handle);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Model& m = Driver::get().model();
  if (out == nullptr || blocks <= 0 || threads <= 0 ||
      static_cast<unsigned>(blocks) > blocks_per_sm(*f, static_cast<unsigned>(threads), 0))
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t reserved = m.compute_major >= 8 ? kReservedShared : 0;
  const std::size_t each = m.shared_per_sm / static_cast<unsigned>(blocks);
  const std::size_t taken = reserved + f->static_shared;
  *out = each > taken
             ? std::min<std::size_t>(each - taken, m.shared_per_block_max - f->static_shared)
             : 0;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int* out, CUfunction f,
                                                      const CUlaunchConfig* config) {
  CU_NEED_INIT();
  if (checked_function(f) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::get().model().compute_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  *out = 8;  // the portable limit
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuOccupancyMaxActiveClusters(int* out, CUfunction handle,
                                                const CUlaunchConfig* config) {
  CU_NEED_INIT();
  const Function* f = checked_function(handle);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Driver::get().model().compute_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  *out = static_cast<int>(blocks_per_sm(*f, threads, config->sharedMemBytes) *
                          Driver::get().model().sm_count);
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
