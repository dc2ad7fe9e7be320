// Every writer on record, see base/testing/decisions.h: what it makes of values with pseudorandom members. The tests
// beside each writer check rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/testing/filled.h"
#include "base/testing/on_record.h"
#include "base/testing/printed.h"
#include "codec/admission/answer.h"
#include "codec/claims/elastic_objects.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/cluster/eviction.h"
#include "codec/cluster/lease.h"
#include "codec/dialects/projection.h"
#include "codec/dra/claim.h"
#include "codec/dra/resource_slice.h"
#include "codec/health/known_cards_text.h"
#include "codec/history/history_segment.h"
#include "codec/host/findings.h"
#include "codec/journal/journal_text.h"
#include "codec/journal/slice_note_text.h"
#include "codec/kube/event.h"
#include "codec/metrics/metrics_text.h"
#include "codec/node/card_modes.h"
#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"
#include "codec/record.h"
#include "codec/views/board.h"
#include "codec/views/cluster_view.h"
#include "codec/views/elastic_status.h"
#include "codec/views/explanation.h"
#include "codec/views/gpushare_inspect.h"
#include "codec/views/usage.h"

namespace carve::codec {
namespace {

constexpr int kTimes = 600;

template <class Item>
std::string pages(const std::vector<Item>& all, std::uint64_t most) {
  std::vector<const Item*> items;
  for (const Item& item : all) items.push_back(&item);
  std::string out;
  BoardPage page{"", most};
  for (int i = 0; i < 3; ++i) {
    const auto text = page_json(items, 7, page);
    out += printed(text);
    if (!text) break;
    const auto at = text->find("\"continue\":\"");
    page.after = text->substr(at + 12, text->size() - at - 14);
    if (page.after.empty()) break;
  }
  return out;
}

std::string board(Numbers& numbers) {
  auto made = filled<Board>(numbers);
  sum_nodes(&made);
  std::sort(made.events.begin(), made.events.end(), before);
  std::string out = printed(made) + summary_json(made, 7) + printed(models_of(made)) + printed(namespaces_of(made));
  BoardChange change;
  fill(&change.complete, numbers);
  fill(&change.rest, numbers);
  fill(&change.gone_cards, numbers);
  for (const auto& one : made.cards) change.cards.push_back(&one);
  for (const auto& one : made.nodes) change.nodes.push_back(&one);
  for (const auto& one : made.slices) change.slices.push_back(&one);
  const std::uint64_t most = numbers.below(4);
  return out + change_json(made, change) + pages(made.cards, most) + pages(made.slices, most) +
         pages(made.nodes, most) + pages(made.waiting, most) + pages(made.events, most);
}

std::string cluster(Numbers& numbers) {
  auto cards = filled<std::vector<GpuObject>>(numbers);
  for (auto& card : cards) card.node = numbers.one_of(2) ? "n1" : "n2";
  const ClusterView view = cluster_view(std::move(cards), filled<std::vector<WaitingPod>>(numbers));
  std::string out = to_json(view) + elastic_status(view);
  for (const char* node : {"", "n1", "n3"}) out += gpushare_inspect(view, Bytes::gib(1), node);
  for (const GpuObject& gpu : view.cards) {
    const CardUse use = use_of(gpu);
    out += printed(free_memory(gpu.card, use)) + printed(free_cores(gpu.card, use));
    for (const GpuHolder& holder : gpu.holders) out += name_of(holder);
  }
  return out;
}

std::string gpu(Numbers& numbers) {
  const auto made = filled<GpuObject>(numbers);
  const std::string spec = encode_gpu(made, "u");
  const auto digest = parse_gpu_digest(spec);
  return spec + gpu_spec_patch(made) + gpu_status_patch(made) + printed(digest && digest->spec == digest_of(made).spec);
}

std::string node(Numbers& numbers) {
  NodeObject existing;
  fill(&existing.conditions, numbers);
  for (const auto& [type, condition] : existing.conditions) existing.since[type] = filled<std::string>(numbers);
  const auto changes = filled<NodeChanges>(numbers);
  const auto conditions = filled<std::vector<NodeCondition>>(numbers);
  const auto label = filled<std::string>(numbers);
  return node_labels_patch(changes) + node_annotations_patch(changes) + node_totals_patch(changes) +
         node_conditions_patch(conditions, existing, "t") + label_value(label) + label_value("a_" + label + "_");
}

std::string journal(Numbers& numbers) {
  const auto note = filled<SliceNote>(numbers);
  const auto record = filled<Record>(numbers);
  return printed(encode_slice_note(note)) + printed(encode_record(record));
}

std::string history(Numbers& numbers) {
  HistoryWriter writer;
  std::string bytes;
  for (int i = 0; i < 3; ++i) {
    const auto frame = filled<HistoryFrame>(numbers);
    bytes += writer.encode(frame, 60 + numbers.below(120));
  }
  std::string out = printed(writer.left_out()) + std::to_string(bytes.size());
  for (const std::size_t size : {bytes.size(), bytes.size() - numbers.below(20)}) {
    const auto read = decode_history(std::string_view(bytes).substr(0, size),
                                     [&](const HistoryFrame& frame) { out += printed(frame); });
    if (!read) out += read.error().what;
  }
  auto answer = filled<HistoryAnswer>(numbers);
  answer.intervals = 2;
  for (auto& line : answer.lines) {
    line.values.resize(answer.intervals);
    for (auto& value : line.values) fill(&value, numbers);
  }
  out += to_json(answer) + to_json(std::vector<NamedHistory>{{"n1", answer, ""}, {"n2", {}, "no"}});
  for (const auto& [key, value] : history_parameters(filled<HistoryQuery>(numbers))) out += key + "=" + value + "&";
  return out;
}

std::string elastic(Numbers& numbers) {
  auto gpu = filled<ElasticGpu>(numbers);
  gpu.request.memory = MemoryAsk::of(Bytes::mib(1 + numbers.below(100)));
  if (gpu.cards.empty()) gpu.cards = {"GPU-1"};
  const auto place = filled<CardPlace>(numbers);
  const auto phase = static_cast<GpuPhase>(numbers.below(5));
  const auto claim_phase = static_cast<ClaimPhase>(numbers.below(3));
  const CardPlace* known_place = numbers.one_of(2) ? nullptr : &place;
  const ElasticGpu* known_gpu = numbers.one_of(3) ? nullptr : &gpu;
  return encode_elastic_gpu(gpu) + elastic_gpu_status(phase, "m", known_place) +
         elastic_claim_status(claim_phase, "m", known_gpu, known_place);
}

std::string kubernetes(Numbers& numbers) {
  ClusterPod pod;
  fill(&pod.ask.name, numbers);
  fill(&pod.ask.uid, numbers);
  fill(&pod.version, numbers);
  const auto name = filled<std::string>(numbers);
  const auto note = filled<EventNote>(numbers);
  std::string out = encode_event(note, "e", name, "c", filled<EventTimes>(numbers));
  out += encode_lease(filled<Lease>(numbers));
  out += encode_slice(filled<PublishedSlice>(numbers), "u");
  out += to_json(filled<ReviewAnswer>(numbers));
  out += eviction_body(pod, numbers.one_of(2));
  return out + nomination_patch(pod, name) + pointer_word(name + "~/");
}

std::string metrics(Numbers& numbers) {
  MetricsText text;
  text.family("a_seconds", MetricsText::Kind::kHistogram, filled<std::string>(numbers));
  const std::string value = filled<std::string>(numbers) + "\\\"\n";
  const std::array<MetricsText::Label, 1> labels{{{"name", value}}};
  const std::array<std::uint64_t, 3> counts{numbers.below(9), numbers.below(9), numbers.below(9)};
  const std::array<double, 2> bounds{0.5, 4};
  text.histogram(counts, bounds, filled<double>(numbers), labels);
  text.sample(filled<double>(numbers), labels, "_x");
  return text.text();
}

std::string known_cards(Numbers& numbers) { return encode_known_cards(filled<KnownCards>(numbers)); }

std::string findings(Numbers& numbers) { return to_json(filled<std::vector<Finding>>(numbers)); }

std::string explanation(Numbers& numbers) { return to_json(filled<Explanation>(numbers)); }

std::string usage(Numbers& numbers) { return usage_json(filled<Usage>(numbers)); }

TEST(Writers, DecideAsOnRecord) {
  on_record("codec_defaults", "4691c7ac6ee5304c", 1, [](Numbers&) {
    return defaults<BoardCard, BoardEvent, BoardModel, BoardNamespace, BoardNode, BoardPage, BoardShape,
                    BoardSlice, CardModes, Claim, ClaimAsk, ClaimConfig, ClusterPod, ContainerAsk, CountedCard,
                    DeviceStatus, DialectSettings, EventNote, EventTimes, Explanation, GpuDigest, GpushareCard,
                    GpushareHolder, GpushareNode, GpuLink, GpuObject, Lease, NodeCondition, PodAsk, PublishedSlice,
                    Replay, ReviewAnswer, Usage>();
  });
  on_record("board", "0936e8de3f81482d", kTimes, board);
  on_record("cluster_view", "2aa5dc05221e259d", kTimes, cluster);
  on_record("gpu_object", "6c344ce7a57e42a8", kTimes, gpu);
  on_record("node_patches", "784082a80ea85891", kTimes, node);
  on_record("journal", "46a9d3dafc911f46", kTimes, journal);
  on_record("history", "3a7a9933e855c997", kTimes, history);
  on_record("elastic", "d2a1b477045d0717", kTimes, elastic);
  on_record("kubernetes", "dbad7adf3b2b9fbc", kTimes, kubernetes);
  on_record("metrics", "bf1201ca43e84f1a", kTimes, metrics);
  on_record("known_cards", "b0f5ad112af8a46f", kTimes, known_cards);
  on_record("findings", "a67ee25077a73808", kTimes, findings);
  on_record("explanation", "9fae30a55edb90cc", kTimes, explanation);
  on_record("usage", "2571669efb49b218", kTimes, usage);
}

}  // namespace
}  // namespace carve::codec
