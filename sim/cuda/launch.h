#pragma once

#include <vector>

#include "sim/cuda/function.h"
#include "sim/cuda/stream.h"

namespace carve::sim::cu {

/// One kernel launch. Arguments that must outlive the call are copied.
struct KernelCall {
  Function* function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
  void** parameters = nullptr;           // owned by the caller, valid during the call
  std::vector<unsigned char> arguments;  // the copies, when they are kept
};

CUresult check(const KernelCall& call);
/// Copies the caller's arguments, as far as the image contains their sizes.
void keep_arguments(KernelCall* call, void** parameters, void** extra);
/// Runs the computation of a sample kernel. Any other kernel computes nothing, and the driver reports that once.
void compute(const KernelCall& call);
CUresult launch(Stream* stream, KernelCall& call, void** parameters, void** extra);

}  // namespace carve::sim::cu
