#include "core/model/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace carve {
namespace {

void check_card(const RecordPart& part, const RecordCard& card, std::set<CardId>& seen,
                std::vector<Error>& errors) {
  if (!valid_name(card.card.str())) {
    add_invalid(errors,
        fmt::format("part {}: uuid: 1 to 253 letters, digits and . _ : / - are legal", part.part));
    return;
  }
  if (!seen.insert(card.card).second) {
    add_invalid(errors, fmt::format("part {}: card {} is named twice", part.part, card.card.str()));
  }
  if (card.memory == Bytes(0)) {
    add_invalid(errors, fmt::format("part {}, card {}: memory of 0 bytes is not legal; at least 1 byte is", part.part,
                            card.card.str()));
  }
  if (card.compute > CoreShare::whole() ||
      (card.compute == CoreShare() && part.share != ShareClass::kBestEffort)) {
    add_invalid(errors, fmt::format("part {}, card {}: compute {} is not legal; 1 to 100 hundredths of a "
                            "card (0 with besteffort)",
                            part.part, card.card.str(), card.compute.hundredths()));
  }
  if (card.compute > part.ceiling && card.compute <= CoreShare::whole()) {
    add_invalid(errors, fmt::format("part {}, card {}: compute {} is above the ceiling, {}", part.part,
                                    card.card.str(), card.compute.hundredths(), part.ceiling.hundredths()));
  }
}

void check_part(const RecordPart& part, std::vector<Error>& errors) {
  if (!valid_name(part.dialect)) {
    add_invalid(errors,
        fmt::format("part {}: dialect: letters, digits and . _ : / - are legal", part.part));
  }
  if (part.cards.empty() || part.cards.size() > kMaxCardsPerRequest) {
    add_invalid(errors, fmt::format("part {}: {} cards is not legal; 1 to {} are", part.part,
                            part.cards.size(), kMaxCardsPerRequest));
  }
  if (part.ceiling == CoreShare() || part.ceiling > CoreShare::whole()) {
    add_invalid(errors, fmt::format("part {}: ceiling {} is not legal; 1 to 100 hundredths of a card", part.part,
                                    part.ceiling.hundredths()));
  }
  if (part.whole && !part.exclusive) {
    add_invalid(errors, fmt::format("part {}: a whole card must be exclusive", part.part));
  }
  std::set<CardId> seen;
  for (const RecordCard& card : part.cards) check_card(part, card, seen, errors);
}

}  // namespace

std::vector<Error> validate(const Record& record) {
  std::vector<Error> errors;
  if (!valid_name(record.owner.uid)) {
    add_invalid(errors, "owner: uid: 1 to 253 letters, digits and . _ : / - are legal");
  }
  if (record.parts.empty() || record.parts.size() > kMaxPartsPerRecord) {
    add_invalid(errors, fmt::format("parts: {} is not legal; 1 to {} are", record.parts.size(),
                            kMaxPartsPerRecord));
  }
  std::set<std::string> seen;
  for (const RecordPart& part : record.parts) {
    if (!valid_name(part.part)) {
      add_invalid(errors, "part: 1 to 253 letters, digits and . _ : / - are legal");
      continue;
    }
    if (!seen.insert(part.part).second) add_invalid(errors, fmt::format("part {}: named twice", part.part));
    check_part(part, errors);
  }
  return errors;
}

const RecordPart* part_named(const Record& record, std::string_view name) {
  const auto found = std::find_if(record.parts.begin(), record.parts.end(),
                                  [&](const RecordPart& part) { return part.part == name; });
  return found == record.parts.end() ? nullptr : &*found;
}

RecordPart* part_named(Record& record, std::string_view name) {
  return const_cast<RecordPart*>(part_named(std::as_const(record), name));
}

std::vector<Slice> slices_of(const Record& record) {
  std::vector<Slice> slices;
  for (const RecordPart& part : record.parts) {
    for (Slice& slice : slices_of(record.owner, part)) slices.push_back(std::move(slice));
  }
  return slices;
}

std::vector<Slice> slices_of(const Owner& owner, const RecordPart& part) {
  std::vector<Slice> slices;
  for (const RecordCard& card : part.cards) {
    slices.push_back(Slice{owner, part.part, card.card, card.memory, card.compute, part.exclusive, part.whole,
                           part.phase, part.share, part.priority, part.dialect, part.ceiling});
  }
  return slices;
}

Result<Record> record_of(std::uint64_t epoch, const std::vector<Slice>& slices) {
  if (slices.empty()) return fail(Code::kInvalidArgument, "record: no slice");
  Record record;
  record.epoch = epoch;
  record.owner = slices.front().owner;
  for (const Slice& slice : slices) {
    if (slice.owner != record.owner) {
      return fail(Code::kInvalidArgument,
                  fmt::format("record: two owners, {} and {}", record.owner.uid, slice.owner.uid));
    }
    RecordPart like{slice.part,  slice.phase,    slice.exclusive, slice.whole,
                    slice.share, slice.priority, slice.dialect,   {},              slice.ceiling};
    RecordPart* part = part_named(record, slice.part);
    if (part == nullptr) part = &record.parts.emplace_back(like);
    like.cards = part->cards;
    if (like != *part) {
      return fail(Code::kInvalidArgument,
                  fmt::format("record: the slices of part {} differ in class", slice.part));
    }
    part->cards.push_back(RecordCard{slice.card, slice.memory, slice.compute});
  }
  CARVE_TRY_VOID(joined(validate(record)));
  return record;
}

}  // namespace carve
