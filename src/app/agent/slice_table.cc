#include "app/agent/slice_table.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace carve {
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
  for (const auto& card : pages.cards) {
    const auto index = card_index(card.card);
    if (!index) continue;
    sample.busy_ns[*index] = card.busy_ns;
    sample.charged_ns[*index] = card.charged_ns;
    sample.granted_ms[*index] = card.granted_ms;
    sample.drained_ms[*index] = card.drained_ms;
    announced[*index] = card.announced;
    rescues[*index] = card.rescues;
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

std::string plain_name(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (out.size() == 100) break;
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return out;
}

std::string note_of(const LiveSlice& slice) {
  std::string note = std::string("keep=") + (slice.keep ? "1" : "0") + " uid=" + std::to_string(slice.uid);
  if (slice.gated) note += " gated=1";
  if (!slice.local()) {
    note += " owner=" + std::string(to_string(slice.holder.kind)) + "/" + slice.holder.uid + " part=" + slice.part;
    std::string pods;
    for (const auto& pod : slice.pods) pods += (pods.empty() ? " pods=" : ",") + pod;
    note += pods;
    std::string variables;
    for (const auto& [key, value] : slice.environment) {
      variables += (variables.empty() ? " env=" : ";") + key + "=" + value;
    }
    note += variables;
    if (slice.ending) note += " ending=1";
  }
  return note + " name=" + plain_name(slice.name);
}

namespace {
/// The word after ` key=`, up to the next space; empty if there is none. Owners and parts contain no space.
std::string word_of(const std::string& text, const std::string& key) {
  const auto at = text.find(" " + key + "=");
  if (at == std::string::npos) return {};
  const auto begin = at + key.size() + 2;
  return text.substr(begin, text.find(' ', begin) - begin);
}
}  // namespace

void read_note(const std::string& text, LiveSlice* slice) {
  slice->keep = text.rfind("keep=1", 0) == 0;
  const auto uid = text.find(" uid=");
  if (uid != std::string::npos) {
    slice->uid = static_cast<std::uint32_t>(std::strtoul(text.c_str() + uid + 5, nullptr, 10));
  }
  const std::string head = text.substr(0, text.find(" name="));
  slice->gated = word_of(head, "gated") == "1";
  const std::string owner = word_of(head, "owner");
  if (const auto slash = owner.find('/'); slash != std::string::npos) {
    if (const auto kind = owner_kind_from(owner.substr(0, slash))) {
      slice->holder = {*kind, owner.substr(slash + 1)};
      slice->part = word_of(head, "part");
    }
    slice->ending = slice->ending_noted = word_of(head, "ending") == "1";
    std::istringstream pods(word_of(head, "pods"));
    for (std::string pod; std::getline(pods, pod, ',');) slice->pods.push_back(pod);
    std::istringstream variables(word_of(head, "env"));
    for (std::string one; std::getline(variables, one, ';');) {
      const auto equals = one.find('=');
      if (equals != std::string::npos) slice->environment[one.substr(0, equals)] = one.substr(equals + 1);
    }
  }
  const auto name = text.find(" name=");
  if (name != std::string::npos) slice->name = text.substr(name + 6);
}

}  // namespace carve
