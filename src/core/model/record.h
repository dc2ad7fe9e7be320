#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model/request.h"
#include "core/model/slice.h"

namespace carve {

/// One card in a part of a record.
struct RecordCard {
  CardId card;
  Bytes memory;
  CoreShare compute;
  friend bool operator==(const RecordCard&, const RecordCard&) = default;
};

/// One part (container, claim request, `carve run`) of a record, with all its cards in the owner's order.
struct RecordPart {
  std::string part;
  Phase phase = Phase::kRun;
  bool exclusive = false;
  bool whole = false;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::string dialect = "native";
  std::vector<RecordCard> cards;
  CoreShare ceiling = CoreShare::whole();  // see Request::ceiling
  friend bool operator==(const RecordPart&, const RecordPart&) = default;
};

/// The decision, written down: everything that one owner holds on one node. The same bytes are stored in the Binding's
/// annotation, the journal and the GPU object. codec/record.h writes and reads them.
struct Record {
  std::uint64_t epoch = 0;  // of the allocator that decided; 0 outside Kubernetes
  Owner owner;
  std::vector<RecordPart> parts = {};  // in spec order
  friend bool operator==(const Record&, const Record&) = default;
};

inline constexpr std::size_t kMaxPartsPerRecord = 64;

/// All faults of the record's contents: names, empty or repeated parts and cards, zero memory, compute above 100 or
/// above the ceiling, a whole card that is not exclusive. Empty when the record is legal. It does not check the record
/// against the real cards.
[[nodiscard]] std::vector<Error> validate(const Record& record);

/// The part with this name; nullptr: the record has none.
[[nodiscard]] const RecordPart* part_named(const Record& record, std::string_view name);
[[nodiscard]] RecordPart* part_named(Record& record, std::string_view name);

/// The record's slices, in its order.
[[nodiscard]] std::vector<Slice> slices_of(const Record& record);
/// The same of one part of this owner.
[[nodiscard]] std::vector<Slice> slices_of(const Owner& owner, const RecordPart& part);

/// The record of these slices. They must have one owner, and the slices of a part must have equal classes.
///   errors  kInvalidArgument: no slice, two owners, or slices of one part that differ in class
[[nodiscard]] Result<Record> record_of(std::uint64_t epoch, const std::vector<Slice>& slices);

}  // namespace carve
