#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace carve {

/// The dense FP32 peak of a card model, in tenths of a TFLOPS; nullopt: the model is not in the table.
///   model   as the driver prints it: "NVIDIA A100-SXM4-80GB", "Tesla T4". Any case
///   source  NVIDIA's data sheets, vector units (not tensor cores)
[[nodiscard]] std::optional<std::uint32_t> fp32_peak(std::string_view model);

}  // namespace carve
