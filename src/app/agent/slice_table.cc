#include "app/agent/slice_table.h"

#include <algorithm>

namespace carve::agent {
namespace {

/// Growth of a counter modulo 2^32. A counter that decreased is from another arbiter, which started at 0.
double grown_ms(std::uint32_t before, std::uint32_t after) {
  const std::uint32_t by = after - before;
  return by > UINT32_MAX / 2 ? after : by;
}

}  // namespace

std::optional<std::size_t> LiveSlice::card_index(const CardId& card) const {
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].card == card) return i;
  }
  return std::nullopt;
}

void LiveSlice::take(const PageSlice& pages, Clock::Time now) {
  const std::vector<std::uint64_t> zeros(slices.size(), 0);
  Sample sample{now, zeros, zeros, std::vector<std::optional<std::uint32_t>>(slices.size()),
                std::vector<std::uint32_t>(slices.size())};
  announced.assign(slices.size(), Bytes());
  rescues.assign(slices.size(), 0);
  counters.assign(slices.size(), std::nullopt);
  for (const auto& card : pages.cards) {
    const auto index = card_index(card.card);
    if (!index) continue;
    sample.busy_ns[*index] = card.busy_ns;
    sample.charged_ns[*index] = card.charged_ns;
    sample.granted_ms[*index] = card.granted_ms;
    sample.drained_ms[*index] = card.drained_ms;
    announced[*index] = card.announced;
    rescues[*index] = card.rescues;
    counters[*index] = card.counters;
  }
  registered.clear();
  for (const auto& process : pages.processes) registered.push_back(process.pid);
  samples.push_back(std::move(sample));
  while (samples.size() > 2 && samples.front().at + std::chrono::seconds(2) < now) samples.pop_front();
}

double LiveSlice::grown_percent(std::vector<std::uint64_t> Sample::*counter, std::size_t index) const {
  if (samples.size() < 2) return 0;
  const Sample& last = samples.back();
  // The youngest sample that is at least a second old, or else the oldest one.
  const Sample* first = &samples.front();
  for (const auto& sample : samples) {
    if (last.at - sample.at >= std::chrono::seconds(1)) first = &sample;
  }
  const auto span = static_cast<double>((last.at - first->at).count());
  const std::uint64_t before = (first->*counter)[index];
  const std::uint64_t after = (last.*counter)[index];
  if (span <= 0 || after <= before) return 0;
  return std::min(100.0, 100.0 * static_cast<double>(after - before) / span);
}

double LiveSlice::delivered_percent(std::size_t index) const { return grown_percent(&Sample::busy_ns, index); }

double LiveSlice::charged_percent(std::size_t index) const {
  if (samples.size() < 2) return 0;
  const Sample& last = samples.back();
  const Sample& before = samples[samples.size() - 2];
  const auto span = static_cast<double>((last.at - before.at).count());
  if (span <= 0 || last.charged_ns[index] <= before.charged_ns[index]) return 0;
  return 100.0 * static_cast<double>(last.charged_ns[index] - before.charged_ns[index]) / span;
}

std::optional<double> LiveSlice::granted_percent(std::size_t index) const {
  if (samples.size() < 2) return std::nullopt;
  const Sample& last = samples.back();
  const Sample& before = samples[samples.size() - 2];
  const auto span = std::chrono::duration<double, std::milli>(last.at - before.at).count();
  if (span <= 0 || !last.granted_ms[index] || !before.granted_ms[index]) return std::nullopt;
  return 100.0 * grown_ms(*before.granted_ms[index], *last.granted_ms[index]) / span;
}

double LiveSlice::drained_percent(std::size_t index) const {
  if (samples.size() < 2) return 0;
  const Sample& last = samples.back();
  const Sample& before = samples[samples.size() - 2];
  const auto span = std::chrono::duration<double, std::milli>(last.at - before.at).count();
  return span <= 0 ? 0 : 100.0 * grown_ms(before.drained_ms[index], last.drained_ms[index]) / span;
}

std::string offender_of(const LiveSlice& slice) {
  if (slice.local()) return "user " + std::to_string(slice.uid);
  const auto slash = slice.name.find('/');
  return slash == std::string::npos ? slice.holder.uid : "namespace " + slice.name.substr(0, slash);
}

std::string program_in(const std::string& command_line) {
  const std::string word = command_line.substr(0, command_line.find(' '));
  return word.substr(word.rfind('/') + 1);
}

std::string plain_name(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (out.size() == 100) break;
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return out;
}

SliceNote note_of(const LiveSlice& slice) {
  SliceNote note;
  note.keep = slice.keep;
  note.uid = slice.uid;
  note.in_private_folder = slice.in_private_folder;
  if (!slice.local()) note.prepared_for = {slice.holder, slice.part, slice.pods, slice.environment, slice.ending};
  note.name = plain_name(slice.name);
  return note;
}

LiveSlice slice_of(const std::string& id, const SliceNote& note) {
  LiveSlice slice;
  slice.id = id;
  slice.holder = {OwnerKind::kLocal, id};
  slice.keep = note.keep;
  slice.uid = note.uid;
  slice.in_private_folder = note.in_private_folder;
  if (note.prepared_for) {
    slice.holder = note.prepared_for->owner;
    slice.part = note.prepared_for->part;
    slice.pods = note.prepared_for->pods;
    slice.environment = note.prepared_for->environment;
    slice.ending = slice.ending_noted = note.prepared_for->ending;
  }
  slice.name = note.name;
  return slice;
}

}  // namespace carve::agent
