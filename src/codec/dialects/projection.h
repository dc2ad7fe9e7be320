#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codec/dialects/dialect.h"
#include "core/model/card.h"
#include "core/model/record.h"

// What existing third-party programs expect on a placed pod and inside its containers. All of it is a projection of the
// record: Carve writes it and never reads it back.
namespace carve::codec {

/// A card of the pod's node, as other dialects number it.
struct CountedCard {
  CardId id;
  int index = -1;  // its position in the driver's list of the node; -1: unknown
  Bytes memory;
};

/// The inputs of a projection.
struct Shown {
  const Record& record;
  const std::vector<CountedCard>& cards;  // all of the node; at least those of the record
  const DialectSettings& settings;
  std::vector<std::string> containers;  // the names of spec.containers in their order; empty: unknown
  std::uint64_t now = 0;                // nanoseconds since 1970
  std::string node = {};                // on which the pod runs; empty: unknown
};

/// The positions of the part's cards in the driver's list, "0" or "0,1". Empty if one of them is unknown.
[[nodiscard]] std::string indexes_of(const Shown& shown, const RecordPart& part);
/// The card of the record; nullptr: the node has none of that ID.
[[nodiscard]] const CountedCard* counted(const Shown& shown, const CardId& card);

/// The annotations that are written along with the record in the Binding: those of each dialect that a part of the
/// record uses. Empty for native and nvidia.com/gpu.
[[nodiscard]] Texts projections(const PodAsk& pod, const Record& record,
                                const std::vector<CountedCard>& cards,
                                const DialectSettings& settings, std::uint64_t now_ns,
                                const std::string& node = {});

/// The variables that the dialect of the part promises inside the container `part`, in addition to
/// NVIDIA_VISIBLE_DEVICES (which is void). Empty for a part that the record does not have.
[[nodiscard]] Texts environment(const Record& record, const std::string& part,
                                const std::vector<CountedCard>& cards,
                                const DialectSettings& settings);

}  // namespace carve::codec
