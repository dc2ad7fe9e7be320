#pragma once

// What the simulated driver says of itself; both of its libraries read it here. No NVIDIA driver ever
// had branch 999, and the figures after it name the CUDA version, so nobody takes it for a real one;
// three numbers with points, because that is what programs parse.
namespace carve::sim {

inline constexpr int kCudaDriverVersion = 13050;  // 1000·major + 10·minor
inline constexpr char kDriverVersionText[] = "999.13.05";

}  // namespace carve::sim
