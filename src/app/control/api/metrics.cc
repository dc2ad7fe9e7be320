#include "app/control/api/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "codec/views/board.h"
#include "codec/views/cluster_view.h"

namespace carve::control {
namespace {

using Kind = codec::MetricsText::Kind;

constexpr std::array<std::string_view, ControlMetrics::kVerbs> kVerbNames = {
    "filter", "prioritize", "bind", "preempt", "mutate", "validate", "read", "other"};
constexpr std::array<std::string_view, 3> kOutcomeNames = {"ok", "refused", "failed"};

}  // namespace

void Durations::observe(std::chrono::nanoseconds took) {
  const double seconds = std::chrono::duration<double>(took).count();
  const auto place = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  counts_[static_cast<std::size_t>(place)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<std::uint64_t>(took.count()), std::memory_order_relaxed);
}

void Durations::write(std::string_view verb, codec::MetricsText* text) const {
  std::array<std::uint64_t, kBounds.size() + 1> counts;
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = counts_[i].load(std::memory_order_relaxed);
  const codec::MetricsText::Label labels[] = {{"verb", verb}};
  text->histogram(counts, kBounds, static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) / 1e9, labels);
}

void ControlMetrics::observe(Verb verb, Ended ended, std::chrono::nanoseconds took) {
  auto& one = verbs_[static_cast<std::size_t>(verb)];
  one.outcomes[static_cast<std::size_t>(ended)].fetch_add(1, std::memory_order_relaxed);
  one.durations.observe(took);
}

void ControlMetrics::observe_filter(const FitView& fit) {
  const auto never = static_cast<std::uint64_t>(
      std::count_if(fit.refused.begin(), fit.refused.end(), [](const RefusedView& node) { return node.final; }));
  nodes_fit_.fetch_add(fit.nodes.size(), std::memory_order_relaxed);
  nodes_full_.fetch_add(fit.refused.size() - never, std::memory_order_relaxed);
  nodes_never_.fetch_add(never, std::memory_order_relaxed);
  std::array<std::uint64_t, kUnschedulableReasons> refused{};
  for (const RefusedView& node : fit.refused) ++refused[static_cast<std::size_t>(node.class_of_why)];
  for (std::size_t i = 0; i < kUnschedulableReasons; ++i) {
    if (refused[i] > 0) nodes_refused_[i].fetch_add(refused[i], std::memory_order_relaxed);
  }
}

void ControlMetrics::observe_refusal(AdmissionFaults faults) {
  for (std::size_t i = 0; i < kAdmissionFaults; ++i) {
    if (faults.test(i)) reviews_refused_[i].fetch_add(1, std::memory_order_relaxed);
  }
}

void ControlMetrics::write(codec::MetricsText* text) const {
  text->family("carve_control_requests_total", Kind::kCounter,
               "Requests by verb and outcome; refused: handled, and the answer is a refusal.");
  for (std::size_t v = 0; v < kVerbs; ++v) {
    for (std::size_t o = 0; o < kOutcomeNames.size(); ++o)
      text->sample(verbs_[v].outcomes[o].load(std::memory_order_relaxed),
                   {{"verb", kVerbNames[v]}, {"outcome", kOutcomeNames[o]}});
  }
  text->family("carve_control_request_duration_seconds", Kind::kHistogram,
               "Time from the complete request to its answer.");
  for (std::size_t v = 0; v < kVerbs; ++v) verbs_[v].durations.write(kVerbNames[v], text);
  text->family("carve_control_filter_nodes_total", Kind::kCounter,
               "Nodes in filter calls: fits; full: the pod would fit if slices ended; never: it cannot fit.");
  text->sample(nodes_fit_.load(), {{"class", "fits"}});
  text->sample(nodes_full_.load(), {{"class", "full"}});
  text->sample(nodes_never_.load(), {{"class", "never"}});
  text->family("carve_control_filter_refusals_total", Kind::kCounter,
               "Nodes refused in filter calls, by reason; of several reasons the one of the card that comes nearest.");
  for (std::size_t i = 0; i < kUnschedulableReasons; ++i)
    text->sample(nodes_refused_[i].load(std::memory_order_relaxed), {{"reason", kUnschedulableWords[i]}});
  text->family("carve_control_admission_refusals_total", Kind::kCounter,
               "Refused admission reviews of pods, by fault; a review with several faults counts under each of them.");
  for (std::size_t i = 0; i < kAdmissionFaults; ++i)
    text->sample(reviews_refused_[i].load(std::memory_order_relaxed), {{"reason", kAdmissionFaultWords[i]}});
}

void write_cards(const ClusterState& cluster, codec::MetricsText* text) {
  struct Row {
    std::string_view name;
    std::string_view help;
    double (*value)(const CardState&);
  };
  static constexpr Row kRows[] = {
      {"carve_control_card_memory_bytes", "The card's memory.",
       [](const CardState& card) { return static_cast<double>(card.card.memory.count()); }},
      {"carve_control_card_memory_granted_bytes", "Memory of the card that slices hold.",
       [](const CardState& card) { return static_cast<double>(card.use.memory.count()); }},
      {"carve_control_card_compute_ratio", "The card's compute: 1.",
       [](const CardState& card) { return card.card.compute.hundredths() / 100.0; }},
      {"carve_control_card_compute_guaranteed_ratio", "Compute of the card that is guaranteed to slices.",
       [](const CardState& card) { return card.use.compute.hundredths() / 100.0; }},
      {"carve_control_card_slices", "Slices on the card.",
       [](const CardState& card) { return static_cast<double>(card.use.slices); }},
      {"carve_control_card_exclusive", "1: one slice holds the card exclusively.",
       [](const CardState& card) { return card.use.exclusive ? 1.0 : 0.0; }},
      {"carve_control_card_healthy", "1: the card is healthy.",
       [](const CardState& card) { return card.card.health.ok ? 1.0 : 0.0; }}};
  for (const auto& row : kRows) {
    text->family(row.name, Kind::kGauge, row.help);
    for (const auto& [node, state] : cluster) {
      for (const auto& card : state->ledger.cards())
        text->sample(row.value(card), {{"node", node}, {"card", card.card.id.str()}, {"model", card.card.model}});
    }
  }
}

void write_free_room(const ClusterState& cluster, codec::MetricsText* text) {
  codec::Board board;
  for (const auto& [node, state] : cluster) {
    for (const auto& held : state->ledger.cards()) {
      codec::BoardCard& one = board.cards.emplace_back();
      one.model = held.card.model;
      one.memory = held.card.memory;
      one.free = codec::free_memory(held.card, held.use);
      one.cores_free = codec::free_cores(held.card, held.use);
      one.slices = held.use.slices;
      one.healthy = held.card.health.ok;
    }
  }
  const auto models = codec::models_of(board);
  struct Row {
    std::string_view name;
    std::string_view help;
    double (*value)(const codec::BoardModel&);
  };
  static constexpr Row kRows[] = {
      {"carve_control_free_memory_bytes", "Memory of healthy cards that no slice holds.",
       [](const codec::BoardModel& model) { return static_cast<double>(model.free.count()); }},
      {"carve_control_largest_free_memory_bytes", "The largest request for memory that fits on one card.",
       [](const codec::BoardModel& model) { return static_cast<double>(model.largest_memory.count()); }},
      {"carve_control_largest_free_compute_ratio", "The largest request for compute that fits on one card.",
       [](const codec::BoardModel& model) { return model.largest_cores / 100.0; }},
      {"carve_control_empty_cards", "Healthy cards without a slice.",
       [](const codec::BoardModel& model) { return static_cast<double>(model.empty); }}};
  for (const auto& row : kRows) {
    text->family(row.name, Kind::kGauge, row.help);
    for (const auto& model : models) text->sample(row.value(model), {{"model", model.model}});
  }
  const auto shapes = [&](std::string_view name, std::string_view help, std::uint64_t codec::BoardShape::*count) {
    text->family(name, Kind::kGauge, help);
    for (const auto& model : models) {
      for (const auto& shape : model.shapes)
        text->sample(shape.*count, {{"model", model.model}, {"size", fmt::format("1/{}", shape.parts)}});
    }
  };
  shapes("carve_control_fitting_requests",
         "Requests for this part of a card, memory and compute alike, that still fit.", &codec::BoardShape::fit);
  shapes("carve_control_fitting_requests_unfragmented",
         "The same if all free room were on one card. The difference is lost to fragmentation.",
         &codec::BoardShape::in_one_piece);
}

void write_settings(bool good, codec::MetricsText* text) {
  text->family("carve_control_settings_good", Kind::kGauge,
               "1: the ConfigMap carve-cluster is valid; 0: it is invalid, the previous settings stay in effect, and a "
               "process that restarts cannot start.");
  text->sample(std::uint64_t{good ? 1U : 0U});
}

void write_quotas(const std::vector<QuotaUse>& uses, codec::MetricsText* text) {
  const auto sample = [text](const QuotaUse& use, CardParts parts) {
    text->sample(static_cast<double>(parts) / 100, {{"namespace", use.namespace_name},
                                                    {"model", use.quota.model.empty() ? "*" : use.quota.model}});
  };
  text->family("carve_control_quota_cards", Kind::kGauge,
               "The cards of the models whose name contains `model` that the namespace may hold.");
  for (const auto& use : uses) sample(use, use.quota.limit);
  text->family("carve_control_quota_used_cards", Kind::kGauge,
               "The cards that it holds; a fraction counts with the larger of its parts of memory and compute.");
  for (const auto& use : uses) sample(use, use.used);
}

void write_placement(const PolicyWatcher::Stats& stats, codec::MetricsText* text) {
  text->family("carve_control_placement_rules_good", Kind::kGauge,
               "1: the ConfigMap carve-placement is valid; 0: it is invalid, the last valid rules stay in effect.");
  text->sample(std::uint64_t{stats.good ? 1U : 0U});
  text->family("carve_control_placement_info", Kind::kGauge,
               "1; the resourceVersion of carve-placement that was read last, valid or not; empty: there is none.");
  text->sample(std::uint64_t{1}, {{"resource_version", stats.version}});
  text->family("carve_control_placement_rules", Kind::kGauge, "Placement rules in effect, by scope.");
  text->sample(std::uint64_t{stats.pools}, {{"scope", "pool"}});
  text->sample(std::uint64_t{stats.namespaces}, {{"scope", "namespace"}});
  text->family("carve_control_placement_changes_total", Kind::kCounter,
               "How often the placement rules changed, and how often an invalid text was refused.");
  text->sample(stats.changes, {{"outcome", "taken"}});
  text->sample(stats.refused, {{"outcome", "refused"}});
}

void write_cluster_stats(const ClusterModel::Stats& stats, codec::MetricsText* text) {
  const auto gauge = [text](std::string_view name, std::string_view help, std::size_t value) {
    text->family(name, Kind::kGauge, help);
    text->sample(std::uint64_t{value});
  };
  gauge("carve_nodes", "Nodes with cards.", stats.nodes);
  gauge("carve_cards", "Cards of the cluster.", stats.cards);
  gauge("carve_cards_closed", "Cards that are closed to new slices.", stats.closed);
  gauge("carve_nodes_leaving", "Nodes on which the agent is being replaced: no pod is bound there.", stats.leaving);
  gauge("carve_nodes_conflicting",
        "Nodes where another device plugin serves a resource name: no pod that uses its dialect is bound there.",
        stats.conflicting);
  text->family("carve_pods", Kind::kGauge,
               "Pods that request cards: they hold cards, wait, or are bound to a node without a record.");
  text->sample(std::uint64_t{stats.holding}, {{"state", "holding"}});
  text->sample(std::uint64_t{stats.waiting}, {{"state", "waiting"}});
  text->sample(std::uint64_t{stats.unplaced}, {{"state", "unplaced"}});
  gauge("carve_control_reservations", "Rooms set aside for Bindings in progress.", stats.reserved);
  gauge("carve_control_holds", "Pods with a nominated reservation: room is kept while their victims end.",
        stats.nominated);
  gauge("carve_control_conflicts", "Booked slices that do not fit.", stats.conflicts);
  const auto counter = [text](std::string_view name, std::string_view help, std::uint64_t value) {
    text->family(name, Kind::kCounter, help);
    text->sample(value);
  };
  counter("carve_control_conflicts_total", "Conflicts since the start.", stats.conflicts_seen);
  counter("carve_control_unreadable_objects_total", "Objects from the API server that could not be parsed.",
          stats.unreadable);
  counter("carve_control_ledgers_rebuilt_total", "Node ledgers that were rebuilt.", stats.rebuilt);
}

void write_bindings(const Binder::Stats& stats, codec::MetricsText* text) {
  text->family("carve_control_bindings_total", Kind::kCounter,
               "Bindings by outcome: refused: not written; failed: the API server refused it; unknown: the answer was "
               "lost; found: the answer was lost and the Binding had taken effect; released: it did not take effect.");
  const std::pair<const char*, std::uint64_t> rows[] = {{"bound", stats.bound},       {"refused", stats.refused},
                                                        {"failed", stats.failed},     {"unknown", stats.unknown},
                                                        {"found", stats.found_bound}, {"released", stats.released}};
  for (const auto& [outcome, count] : rows) text->sample(count, {{"outcome", outcome}});
}

void write_preemptions(const Preemptor::Stats& stats, codec::MetricsText* text) {
  text->family("carve_control_preemptions_total", Kind::kCounter,
               "Preemptions by outcome: made: the victims are evicted; protected: a disruption budget forbids it; "
               "undone: stopped before the first eviction; given_up: the room was free and the pod did not use it.");
  const std::pair<const char*, std::uint64_t> rows[] = {
      {"made", stats.made}, {"protected", stats.by_budget}, {"undone", stats.undone}, {"given_up", stats.given_up}};
  for (const auto& [outcome, count] : rows) text->sample(count, {{"outcome", outcome}});
  text->family("carve_control_preemption_victims_total", Kind::kCounter, "Pods evicted for pods of higher priority.");
  text->sample(stats.victims);
}

void write_node_nominator(const NodeNominator::Stats& stats, codec::MetricsText* text) {
  text->family("carve_control_nodes_named_total", Kind::kCounter,
               "Nodes nominated for pods that kube-scheduler rejected without having looked at these nodes.");
  text->sample(stats.nominated);
  text->family("carve_control_nodes_named_in_vain_total", Kind::kCounter,
               "Of these, nodes that the pod did not use: it lacked more than cards there.");
  text->sample(stats.unsuccessful);
}

}  // namespace carve::control
