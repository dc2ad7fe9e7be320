#pragma once

#include <vector>

#include "sim/cuda/function.h"
#include "sim/cuda/stream.h"

namespace carve::sim::cu {

/// One kernel launch, with its arguments by value where they must outlive the call.
struct KernelCall {
  Function* function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
  void** parameters = nullptr;           // the caller's, during the call
  std::vector<unsigned char> arguments;  // copies, where they are kept
};

CUresult check(const KernelCall& call);
/// Copies the arguments out of the caller's hands, as far as the image tells their sizes.
void keep_arguments(KernelCall* call, void** parameters, void** extra);
/// What a sample kernel computes; any other kernel does nothing, and the driver says so once.
void compute(const KernelCall& call);
CUresult launch(Stream* stream, KernelCall& call, void** parameters, void** extra);

}  // namespace carve::sim::cu
