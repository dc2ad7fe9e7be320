#pragma once

#include <cstdint>
#include <string>
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

/// One part (container, claim request, `carve run`) of a record, on all its cards in the owner's order.
struct RecordPart {
  std::string part;
  Phase phase = Phase::kRun;
  bool exclusive = false;
  bool whole = false;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::string dialect = "native";
  std::vector<RecordCard> cards;
  friend bool operator==(const RecordPart&, const RecordPart&) = default;
};

/// The decision, written down: everything that one owner holds on one node. The same bytes go into the
/// Binding's annotation, the journal and the GPU object; codec/record.h writes and reads them.
struct Record {
  std::uint64_t epoch = 0;  // of the allocator that decided; 0 on one machine
  Owner owner;
  std::vector<RecordPart> parts;  // in spec order
  friend bool operator==(const Record&, const Record&) = default;
};

inline constexpr std::size_t kMaxPartsPerRecord = 64;

/// All that is wrong with the record's contents: names, empty or repeated parts and cards, zero memory,
/// compute above 100, a whole card that is not exclusive. Empty when legal. It does not know the cards.
[[nodiscard]] std::vector<Error> validate(const Record& record);

/// The record's slices, in its order.
[[nodiscard]] std::vector<Slice> slices_of(const Record& record);

/// The record that holds these slices: all of one owner, those of a part with equal classes.
///   errors  kInvalidArgument: no slice, two owners, or slices of one part that differ in class
[[nodiscard]] Result<Record> record_of(std::uint64_t epoch, const std::vector<Slice>& slices);

}  // namespace carve
