#include "core/journal/journal.h"

#include <fmt/format.h>

#include <utility>

namespace carve {
namespace {

Result<void> check_name(std::string_view what, const std::string& name) {
  if (valid_name(name)) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("journal: {}: 1 to 253 letters, digits and . _ : / - are legal", what));
}

struct Apply {
  JournalState& state;

  Result<void> operator()(const PutRecord& put) const {
    CARVE_TRY_VOID(joined(validate(put.record)));
    state.records[put.record.owner] = put.record;
    return {};
  }
  Result<void> operator()(const DropOwner& drop) const {
    CARVE_TRY_VOID(check_name("owner", drop.owner.uid));
    if (state.records.erase(drop.owner) > 0) return {};
    return fail(Code::kNotFound, fmt::format("journal: {} {} holds nothing",
                                             to_string(drop.owner.kind), drop.owner.uid));
  }
  Result<void> operator()(const SetCounter& set) const {
    CARVE_TRY_VOID(check_name("counter", set.name));
    const auto [at, fresh] = state.counters.try_emplace(set.name, set.value);
    if (!fresh && set.value < at->second) {
      return fail(Code::kOutOfRange, fmt::format("journal: counter {} would decrease from {} to {}",
                                                 set.name, at->second, set.value));
    }
    at->second = set.value;
    return {};
  }
  Result<void> operator()(const PutNote& put) const {
    CARVE_TRY_VOID(check_name("note", put.slice));
    if (auto legal = joined(validate(put.note)); !legal) {
      return fail_in(fmt::format("journal: note {}", put.slice), std::move(legal).error());
    }
    state.notes[put.slice] = put.note;
    return {};
  }
  Result<void> operator()(const DropNote& drop) const {
    CARVE_TRY_VOID(check_name("note", drop.slice));
    state.notes.erase(drop.slice);
    return {};
  }
};

}  // namespace

Result<void> apply_event(JournalState& state, const JournalEvent& event) {
  return std::visit(Apply{state}, event);
}

Result<void> apply_all(JournalState& state, const std::vector<JournalEvent>& events) {
  if (events.size() == 1) return apply_event(state, events.front());
  JournalState next = state;
  for (const JournalEvent& event : events) CARVE_TRY_VOID(apply_event(next, event));
  state = std::move(next);
  return {};
}

std::vector<JournalEvent> snapshot_of(const JournalState& state) {
  std::vector<JournalEvent> events;
  events.reserve(state.counters.size() + state.records.size() + state.notes.size());
  for (const auto& [name, value] : state.counters) events.emplace_back(SetCounter{name, value});
  for (const auto& [owner, record] : state.records) events.emplace_back(PutRecord{record});
  for (const auto& [slice, note] : state.notes) events.emplace_back(PutNote{slice, note});
  return events;
}

std::vector<Slice> slices_of(const JournalState& state) {
  std::vector<Slice> slices;
  for (const auto& [owner, record] : state.records) {
    const std::vector<Slice> held = slices_of(record);
    slices.insert(slices.end(), held.begin(), held.end());
  }
  return slices;
}

}  // namespace carve
