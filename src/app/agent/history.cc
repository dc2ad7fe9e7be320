#include "app/agent/history.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "app/agent/slice_table.h"

namespace carve::agent {
namespace {

std::int64_t seconds_of(Clock::WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

/// The time in a file's name; nullopt: not one of these files.
std::optional<std::int64_t> time_in(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t time = 0;
  const char* end = name.data() + name.size();
  const auto [at, wrong] = std::from_chars(name.data() + prefix.size(), end, time);
  return wrong == std::errc() && at == end ? std::optional(time) : std::nullopt;
}

}  // namespace

HistoryFrame History::frame_of(const AgentView& view, std::int64_t now) {
  const auto interval = static_cast<std::uint32_t>(kHistoryFine.count());
  HistoryFrame frame{now, {}};
  std::map<std::string, double> on_card;
  std::map<std::pair<std::string, std::string>, Busy> busy;
  std::vector<HistorySample> slices;
  for (const auto& slice : view.slices) {
    for (const auto& held : slice.cards) {
      HistorySample one;
      one.key = {held.card, slice.id, slice.kind == "run" ? program_in(slice.name) : slice.name};
      one.seconds = interval;
      one.granted = held.limit;
      one.used = if_reported(held.used);
      one.cores_granted = held.compute.hundredths();
      one.cores_delivered = held.delivered_percent;
      const auto key = std::pair(slice.id, held.card);
      const auto before = busy_.find(key);
      // The exact average, if the counter is known at both ends. It begins again when the arbiter creates the pages.
      if (before != busy_.end() && !slice.whole && held.busy_at_ns > before->second.at_ns &&
          held.busy_ns >= before->second.busy_ns) {
        one.cores_delivered = 100.0 * static_cast<double>(held.busy_ns - before->second.busy_ns) /
                              static_cast<double>(held.busy_at_ns - before->second.at_ns);
      }
      busy[key] = {held.busy_ns, held.busy_at_ns};
      on_card[held.card] += *one.cores_delivered;
      slices.push_back(std::move(one));
    }
  }
  busy_ = std::move(busy);
  for (const auto& card : view.cards) {
    HistorySample one;
    one.key.card = card.card.id.str();
    one.seconds = interval;
    one.granted = card.set_aside;
    one.used = if_reported(card.used);
    one.cores_granted = card.guaranteed.hundredths();
    one.cores_delivered = on_card[one.key.card];
    one.temperature = card.temperature_c;
    one.power = card.power_mw / 1000;
    frame.samples.push_back(std::move(one));
  }
  // The cards first: they are what is kept if there are too many slices.
  std::move(slices.begin(), slices.end(), std::back_inserter(frame.samples));
  return frame;
}

void History::record(Clock::WallTime wall) {
  const std::int64_t now = seconds_of(wall);
  if (now < last_) fine_.name = coarse_.name = "";  // the clock was set back: begin again
  const HistoryFrame frame = frame_of(view_(), now);
  last_ = now;
  const std::int64_t interval = now / kHistoryCoarse.count();
  if (interval != rolled_ && !rollup_.empty()) write(rollup_.take(interval * kHistoryCoarse.count()), &coarse_);
  rolled_ = interval;
  rollup_.add(frame);
  write(frame, &fine_);
}

void History::write(const HistoryFrame& frame, Tier* tier) {
  if (tier->name.empty() || frame.unix_seconds >= tier->since + tier->file.count()) {
    tier->since = frame.unix_seconds;
    tier->name = tier->prefix + fmt::format("{:012d}", tier->since);
    tier->writer = {};
    remove_old(frame.unix_seconds, *tier);
    static_cast<void>(store_.remove(tier->name));  // of an agent that began in the same second
  }
  const auto left_out = tier->writer.left_out();
  const auto done = store_.append(tier->name, tier->writer.encode(frame, tier->most));
  if (!done) tier->name.clear();  // what the writer has written is not there: the next frame begins a file
  if (!done && !failing_) log_.warn("the history is not recorded", {{"error", done.error().what}});
  if (done && failing_) log_.info("the history is recorded again", {});
  failing_ = !done;
  if (left_out == 0 && tier->writer.left_out() != 0)
    log_.warn("the history leaves slices out: there are too many", {{"left_out", tier->writer.left_out()}});
}

void History::remove_old(std::int64_t now, const Tier& tier) {
  const auto names = store_.list();
  if (!names) return;
  std::vector<std::string> own;
  for (const auto& name : *names) {
    const auto time = time_in(name, tier.prefix);
    if (!time) continue;
    if (*time + tier.file.count() < now - tier.kept.count())
      static_cast<void>(store_.remove(name));
    else
      own.push_back(name);
  }
  for (std::size_t at = 0; at + kMostFiles < own.size(); ++at) static_cast<void>(store_.remove(own[at]));
}

void History::run(Clock& clock, const std::stop_token& stop) {
  auto next = clock.now() + kHistoryFine;
  while (clock.sleep_until(next, stop)) {
    record(clock.wall_now());
    next = std::max(next + kHistoryFine, clock.now());
  }
}

Result<HistoryAnswer> History::ask(const HistoryQuery& query, Clock::WallTime wall) const {
  const std::int64_t now = seconds_of(wall);
  const Tier& tier = wants_fine(query) ? fine_ : coarse_;
  const std::string prefix = tier.prefix;  // never changes, as `file`
  CARVE_TRY(const auto names, store_.list());
  HistoryReader reader(query, now);
  for (const auto& name : names) {
    const auto time = time_in(name, prefix);
    if (!time || *time + tier.file.count() < now - query.since.count() || *time > now) continue;
    const auto text = store_.read(name);
    // Deleted meanwhile, or not a file of this version.
    if (text) static_cast<void>(codec::decode_history(*text, [&](const HistoryFrame& frame) { reader.add(frame); }));
  }
  return reader.take();
}

}  // namespace carve::agent
