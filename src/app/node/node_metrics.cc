#include "app/node/node_metrics.h"

#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "codec/metrics/metrics_text.h"
#include "port/slice_names.h"

namespace carve::node {
namespace {

using Kind = codec::MetricsText::Kind;

/// NaN if the driver does not report it.
double bytes(Bytes count) { return count == Bytes::max() ? std::nan("") : static_cast<double>(count.count()); }

struct CardRow {
  std::string_view name;
  std::string_view help;
  double (*value)(const CardView&);
  Kind kind = Kind::kGauge;
};
constexpr CardRow kCardRows[] = {
    {"carve_card_memory_bytes", "The card's memory.", [](const CardView& c) { return bytes(c.card.memory); }},
    {"carve_card_memory_granted_bytes", "Memory of the card that is granted to slices.",
     [](const CardView& c) { return bytes(c.set_aside); }},
    {"carve_card_memory_used_bytes", "Memory in use, as reported by the driver.",
     [](const CardView& c) { return bytes(c.used); }},
    {"carve_card_compute_guaranteed_ratio", "Compute of the card that is guaranteed to slices.",
     [](const CardView& c) { return c.guaranteed.hundredths() / 100.0; }},
    {"carve_card_utilization_ratio", "Utilization of the card, as reported by the driver.",
     [](const CardView& c) { return c.utilization_percent / 100.0; }},
    {"carve_card_temperature_celsius", "The card's temperature.",
     [](const CardView& c) { return static_cast<double>(c.temperature_c); }},
    {"carve_card_power_watts", "Power draw of the card.", [](const CardView& c) { return c.power_mw / 1000.0; }},
    {"carve_card_energy_joules_total", "Energy of the card since the driver was loaded.",
     [](const CardView& c) { return c.energy_mj ? static_cast<double>(*c.energy_mj) / 1000 : std::nan(""); },
     Kind::kCounter},
    {"carve_card_tensor_active_ratio",
     "Time in which the card's tensor cores worked, as reported by the driver for Hopper and later cards.",
     [](const CardView& c) { return c.activity.tensor.value_or(std::nan("")); }},
    {"carve_card_sm_clock_hertz", "Clock of the card's multiprocessors, as reported by the driver.",
     [](const CardView& c) { return c.sm_clock_mhz == 0 ? std::nan("") : c.sm_clock_mhz * 1e6; }},
    {"carve_card_memory_clock_hertz", "Clock of the card's memory, as reported by the driver.",
     [](const CardView& c) { return c.memory_clock_mhz == 0 ? std::nan("") : c.memory_clock_mhz * 1e6; }},
    {"carve_card_healthy", "1: the card is healthy.", [](const CardView& c) { return c.card.health.ok ? 1.0 : 0.0; }},
    {"carve_card_foreign_processes", "Processes on the card that belong to no slice.",
     [](const CardView& c) { return static_cast<double>(c.foreign.size()); }},
};

struct SliceRow {
  std::string_view name;
  std::string_view help;
  Kind kind;
  double (*value)(const SliceCardView&);
};
constexpr SliceRow kSliceRows[] = {
    {"carve_slice_memory_limit_bytes", "Memory limit of the slice.", Kind::kGauge,
     [](const SliceCardView& s) { return bytes(s.limit); }},
    {"carve_slice_memory_used_bytes", "Memory of the slice's processes, as reported by the driver.", Kind::kGauge,
     [](const SliceCardView& s) { return bytes(s.used); }},
    {"carve_slice_compute_guaranteed_ratio", "Compute of the card that the slice requested.", Kind::kGauge,
     [](const SliceCardView& s) { return s.compute.hundredths() / 100.0; }},
    {"carve_slice_compute_delivered_ratio", "GPU time that the slice got in the last second.", Kind::kGauge,
     [](const SliceCardView& s) { return s.delivered_percent / 100.0; }},
    {"carve_slice_compute_seconds_total", "GPU time that the slice got, since its pages were created.", Kind::kCounter,
     [](const SliceCardView& s) { return static_cast<double>(s.busy_ns) / 1e9; }},
    {"carve_slice_rescues_total",
     "Leases out of turn that the slice got because its work in flight did not end while it waited to launch more.",
     Kind::kCounter, [](const SliceCardView& s) { return static_cast<double>(s.rescues); }},
};

void write_cards(const AgentView& view, std::string_view node, codec::MetricsText* text) {
  for (const auto& row : kCardRows) {
    text->family(row.name, row.kind, row.help);
    for (const auto& card : view.cards)
      text->sample(row.value(card), {{"node", node}, {"card", card.card.id.str()}, {"model", card.card.model}});
  }
  text->family("carve_card_xid_errors_total", Kind::kCounter, "XIDs that the driver reported for the card, by code.");
  for (const auto& card : view.cards) {
    for (const auto& [xid, count] : card.xids)
      text->sample(count, {{"node", node},
                           {"card", card.card.id.str()},
                           {"model", card.card.model},
                           {"xid", std::to_string(xid)}});
  }
}

/// Counters that an arbiter of an earlier release does not report.
struct CounterRow {
  std::string_view name;
  std::string_view help;
  double (*value)(const SliceCounters&);
};
constexpr CounterRow kCounterRows[] = {
    {"carve_slice_throttled_seconds_total",
     "Time in which a launch of the slice waited because the slice had used up its fixed share or its core limit.",
     [](const SliceCounters& c) { return static_cast<double>(c.capped_ns) / 1e9; }},
    {"carve_slice_gated_launches_total", "Launches that waited for a lease, as the slice's processes count them.",
     [](const SliceCounters& c) { return static_cast<double>(c.gated_launches); }},
    {"carve_slice_denied_allocations_total",
     "Requests for memory that the slice's limit refused, as the slice's processes count them.",
     [](const SliceCounters& c) { return static_cast<double>(c.refused_requests); }},
    {"carve_slice_denied_bytes_total", "Bytes of these requests.",
     [](const SliceCounters& c) { return static_cast<double>(c.refused_bytes); }},
};

/// A slice on one card, with the labels of its series.
class SliceSeries {
 public:
  SliceSeries(const SliceView& slice, const SliceCardView& held, std::string_view node,
              const ClaimHolders::ByUid& claims)
      : slice_(slice), held_(held), node_(node), by_(names_of(slice)) {
    const auto claim = claims.find(slice.owner);
    if (claim == claims.end()) return;
    by_.namespace_name = claim->second.namespace_name;
    by_.pod = claim->second.pod;
    claim_ = claim->second.name;
  }
  [[nodiscard]] const SliceCardView& held() const { return held_; }
  [[nodiscard]] std::array<codec::MetricsText::Label, 9> labels() const {
    return {{{"node", node_},
             {"card", held_.card},
             {"slice", slice_.id},
             {"namespace", by_.namespace_name},
             {"pod", by_.pod},
             {"container", by_.container},
             {"resourceclaim_name", claim_},
             {"share", slice_.whole ? "whole" : to_string(slice_.share)},
             {"priority", to_string(slice_.priority)}}};
  }

 private:
  const SliceView& slice_;
  const SliceCardView& held_;
  std::string_view node_;
  SliceNames by_;
  std::string_view claim_;
};

void write_waits(const SliceSeries& series, const SliceCounters& counters, codec::MetricsText* text) {
  std::array<double, kLeaseWaitEnds.size()> ends;
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = std::chrono::duration<double>(kLeaseWaitEnds[i]).count();
  text->histogram(counters.waits, ends, static_cast<double>(counters.waited_ns) / 1e9, series.labels());
}

void write_slices(const AgentView& view, std::string_view node, const ClaimHolders::ByUid& claims,
                  codec::MetricsText* text) {
  std::vector<SliceSeries> all;
  for (const auto& slice : view.slices) {
    for (const auto& held : slice.cards) all.emplace_back(slice, held, node, claims);
  }
  for (const auto& row : kSliceRows) {
    text->family(row.name, row.kind, row.help);
    for (const auto& series : all) text->sample(row.value(series.held()), series.labels());
  }
  for (const auto& row : kCounterRows) {
    text->family(row.name, Kind::kCounter, row.help);
    for (const auto& series : all) {
      if (series.held().counters) text->sample(row.value(*series.held().counters), series.labels());
    }
  }
  text->family("carve_slice_lease_wait_seconds", Kind::kHistogram,
               "Time for which a launch of the slice waited for a lease of the card, as the arbiter measures it.");
  for (const auto& series : all) {
    if (series.held().counters) write_waits(series, *series.held().counters, text);
  }
}

void write_agent(const AgentView& view, std::string_view node, codec::MetricsText* text) {
  const auto gauge = [&](std::string_view name, std::string_view help, bool well) {
    text->family(name, Kind::kGauge, help);
    text->sample(std::uint64_t{well ? 1U : 0U}, {{"node", node}});
  };
  gauge("carve_agent_driver_up", "1: the vendor's library answers.", view.gpu_state == "ok");
  gauge("carve_agent_arbiter_up", "1: the arbiter answers.", view.arbiter_state == "ok");
  gauge("carve_agent_journal_ok", "1: the last write of the journal succeeded.", view.journal_error.empty());
  text->family("carve_agent_info", Kind::kGauge, "1; the labels name the versions.");
  text->sample(std::uint64_t{1}, {{"node", node},
                                  {"version", view.version},
                                  {"driver", view.driver_version},
                                  {"cuda", view.cuda_version}});
}

}  // namespace

std::string node_metrics(const AgentView& view, std::string_view node, const ClaimHolders::ByUid& claims) {
  codec::MetricsText text;
  write_agent(view, node, &text);
  write_cards(view, node, &text);
  write_slices(view, node, claims, &text);
  return text.text();
}

}  // namespace carve::node
