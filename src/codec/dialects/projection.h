#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codec/dialects/dialect.h"
#include "core/model/card.h"
#include "core/model/record.h"

// What programs of the field expect to find on a placed pod and inside its containers. All of it is
// a projection of the record: written by Carve, never read back by it.
namespace carve::codec {

/// A card of the node that a pod is on, as the dialects of the field count it.
struct CountedCard {
  CardId id;
  int index = -1;  // on its node, as the driver lists them; -1: not known
  Bytes memory;
};

/// What a projection is made of.
struct Shown {
  const Record& record;
  const std::vector<CountedCard>& cards;  // of the node; at least those of the record
  const DialectSettings& settings;
  std::vector<std::string> containers;  // names of spec.containers in their order; empty: not known
  std::uint64_t now = 0;                // nanoseconds since 1970
};

/// The annotations that stand beside the record in the Binding: those of each dialect that a part
/// of the record is written in. Empty for native and nvidia.com/gpu.
[[nodiscard]] Texts projections(const PodAsk& pod, const Record& record,
                                const std::vector<CountedCard>& cards,
                                const DialectSettings& settings, std::uint64_t now_ns);

/// The variables that its dialect promises inside the container `part`, besides
/// NVIDIA_VISIBLE_DEVICES (which is void). Empty for a part that the record does not have.
[[nodiscard]] Texts environment(const Record& record, const std::string& part,
                                const std::vector<CountedCard>& cards,
                                const DialectSettings& settings);

}  // namespace carve::codec
