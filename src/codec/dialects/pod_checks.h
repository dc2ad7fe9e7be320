#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/dialect.h"

// Faults of a pod beside its requests. Admission refuses a pod that has them; `carve lint` reports them.
namespace carve::codec {

/// True: no tenant may set the annotation: the record, the dialects' projections of it, and the older projects' choice
/// of cards.
[[nodiscard]] bool only_carve_writes(std::string_view annotation);

/// "elasticgpu.io/gpu-memory, elasticgpu.io/gpu-core, elasticgpu.io/gpu".
[[nodiscard]] std::string native_names();

/// Unknown names below elasticgpu.io/: a pod with a typing error would wait forever.
[[nodiscard]] std::vector<Error> unknown_names(const ContainerAsk& container);

/// Limits by names of systems that share cards, which an installation with these settings does not read. Beside a name
/// that it reads they would be ignored silently.
[[nodiscard]] std::vector<Error> unread_names(const ContainerAsk& container, const DialectSettings& settings);

/// Annotations below elasticgpu.io/ with a placeholder, as published manifests have them, instead of a container's
/// name. The API server refuses such a key as well, but does not say what to write there.
[[nodiscard]] std::vector<Error> placeholders(const PodAsk& pod);

}  // namespace carve::codec
