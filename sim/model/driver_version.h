#pragma once

// The driver version of the simulated driver; both of its libraries read it here. No NVIDIA driver ever had branch 999,
// and the figures after it give the CUDA version, so no reader takes it for a real one. It has three numbers with
// points, because programs parse that format.
namespace carve::sim {

inline constexpr int kCudaDriverVersion = 13050;  // 1000·major + 10·minor
inline constexpr char kDriverVersionText[] = "999.13.05";

}  // namespace carve::sim
