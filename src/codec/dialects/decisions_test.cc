// What every dialect reads and shows, on record, see base/testing/decisions.h. The other tests of this folder check
// rules.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/on_record.h"
#include "base/testing/printed.h"
#include "codec/dialects/dialect.h"
#include "codec/dialects/pod_checks.h"
#include "codec/dialects/projection.h"
#include "codec/record.h"
#include "core/policy/place_pod.h"

namespace carve::codec {
namespace {

constexpr std::array<const char*, 34> kAmounts = {
    "1", "2", "3", "4", "5", "8", "10", "16", "17", "20", "30", "60", "100", "101", "200", "1000", "4k", "0", "-1",
    "1.5", "1500m", "4Gi", "", "x", "1", "2", "10", "20", "30", "2k", "100", "4", "16384", "4194305"};
/// Most amounts are small and legal in every dialect.
constexpr std::array<const char*, 5> kSmallAmounts = {"1", "2", "5", "10", "20"};
constexpr std::array<std::pair<const char*, const char*>, 30> kAnnotations = {{
    {"elasticgpu.io/share-class", "fixed"},
    {"elasticgpu.io/share-class", "burst"},
    {"elasticgpu.io/share-class", "besteffort"},
    {"elasticgpu.io/share-class", "shared"},
    {"elasticgpu.io/priority-class", "online"},
    {"elasticgpu.io/priority-class", "offline"},
    {"elasticgpu.io/priority-class", "first"},
    {"elasticgpu.io/core-limit", "60"},
    {"elasticgpu.io/core-limit", "5"},
    {"elasticgpu.io/core-limit", "101"},
    {"nvidia.com/use-gputype", "T4, A100"},
    {"nvidia.com/nouse-gputype", "V100,,T4"},
    {"nvidia.com/use-gpuuuid", "GPU-0,GPU-1"},
    {"nvidia.com/nouse-gpuuuid", "GPU-2"},
    {"hami.io/gpu-scheduler-policy", "binpack,mutex"},
    {"hami.io/gpu-scheduler-policy", "spread"},
    {"hami.io/node-scheduler-policy", "spread"},
    {"tke.cloud.tencent.com/app-class", "online"},
    {"tke.cloud.tencent.com/app-class", "offline"},
    {"tke.cloud.tencent.com/app-class", "batch"},
    {"tencent.com/vcuda-core-limit", "80"},
    {"tencent.com/vcuda-core-limit", "x"},
    {"elasticgpu.io/container-c0", "0"},
    {"elasticgpu.io/assumed", "true"},
    {"elasticgpu.io/container-<name>", "1"},
    {"ALIYUN_COM_GPU_MEM_IDX", "0"},
    {"volcano.sh/gpu-index", "1"},
    {"tencent.com/predicate-time", "7"},
    {"carve.elasticgpu.io/record", "{}"},
    {"example.com/x", "y"},
}};

template <class List>
auto& pick(const List& list, Numbers& numbers) {
  return list[numbers.below(list.size())];
}

DialectSettings some_settings(Numbers& numbers) {
  DialectSettings settings;
  if (numbers.one_of(2)) settings.gpushare_unit = Bytes::mib(1);
  settings.nvidia_by_slots = !numbers.one_of(4);
  settings.hami = settings.nvidia_by_slots && numbers.one_of(2);
  settings.volcano_unit = Bytes::mib(numbers.one_of(2) ? 10 : 1);
  if (numbers.one_of(2)) settings.deepomatic_containers = 4;
  if (numbers.one_of(2)) settings.rancher_containers = 3;
  return settings;
}

ContainerAsk some_container(const std::string& name, Numbers& numbers) {
  ContainerAsk container;
  container.name = name;
  container.kind = numbers.one_of(6) ? static_cast<ContainerKind>(numbers.below(2)) : ContainerKind::kMain;
  for (std::uint64_t many = numbers.one_of(12) ? 2 : 1; many > 0; --many) {
    const Dialect& dialect = pick(dialects(), numbers);
    for (const ResourceName& one : dialect.names) {
      if (!numbers.one_of(3)) {
        const bool any = numbers.one_of(5);
        container.limits[std::string(one.name)] = any ? pick(kAmounts, numbers) : pick(kSmallAmounts, numbers);
      }
    }
  }
  if (numbers.one_of(30)) container.limits["elasticgpu.io/gpu-mem"] = "1";
  if (!numbers.one_of(3)) container.limits[std::string(kSlots)] = "1";
  if (numbers.one_of(3)) container.requests = container.limits;
  if (numbers.one_of(40)) container.requests["aliyun.com/gpu-mem"] = "3";
  return container;
}

PodAsk some_pod(Numbers& numbers) {
  PodAsk pod;
  pod.uid = "u";
  const std::uint64_t many = numbers.one_of(2) ? 1 + numbers.below(3) : 1;
  for (std::uint64_t i = 0; i < many; ++i) pod.containers.push_back(some_container("c" + std::to_string(i), numbers));
  for (std::uint64_t i = numbers.below(3); i > 0; --i) {
    const auto& [key, value] = pick(kAnnotations, numbers);
    pod.annotations[key] = value;
  }
  if (numbers.one_of(3)) pod.labels["aliyun.com/gpu-count"] = pick(kAmounts, numbers);
  if (numbers.one_of(3)) pod.node_selector["gpu.cattle.io/type"] = numbers.one_of(3) ? "other" : "share";
  return pod;
}

/// A node with two models, on which only one pod is placed.
struct Node {
  Ledger ledger;
  LinkMatrix links;
  std::vector<CountedCard> counted;

  Node() {
    std::vector<CardId> ids;
    for (int i = 0; i < 4; ++i) {
      Card card;
      card.id = CardId("GPU-" + std::to_string(i));
      card.model = i < 2 ? "NVIDIA T4" : "NVIDIA A100-SXM4-40GB";
      card.memory = Bytes::gib(i < 2 ? 16 : 40);
      EXPECT_TRUE(ledger.put_card(card).has_value());
      ids.push_back(card.id);
      counted.push_back({card.id, i == 3 ? -1 : i, card.memory});
    }
    links = LinkMatrix(ids);
  }
};

void show(const PodAsk& pod, const std::vector<PartRequest>& parts, const DialectSettings& settings, const Node& node,
          Decisions& decisions) {
  const auto slices = place_pod(node.ledger, node.links, {OwnerKind::kPod, "u"}, parts, kPolicies[0]);
  if (!slices) return;
  const auto record = record_of(7, *slices);
  if (!record) return;
  decisions.add(printed(encode_record(*record)));
  decisions.add(printed(projections(pod, *record, node.counted, settings, 1'700'000'000'123'456'789ULL, "n1")));
  for (const RecordPart& part : record->parts) {
    decisions.add(printed(environment(*record, part.part, node.counted, settings)));
  }
}

TEST(DialectDecisions, AreThoseOnRecord) {
  Numbers numbers(1);
  const Node node;
  Decisions decisions("dialects");
  for (int i = 0; i < 6'000; ++i) {
    const DialectSettings settings = some_settings(numbers);
    const PodAsk pod = some_pod(numbers);
    const auto parts = requests_of(pod, settings);
    decisions.add(printed(parts) + printed(requests_by_slots(pod, settings)) + printed(placeholders(pod)));
    for (const ContainerAsk& container : pod.containers) {
      decisions.add(printed(unknown_names(container)) + printed(unread_names(container, settings)));
    }
    for (const auto& [key, value] : pod.annotations) decisions.add({is_shown(key), only_carve_writes(key)});
    if (parts && !parts->empty()) show(pod, *parts, settings, node, decisions);
  }
  expect_on_record(decisions, "dialects", "1f2dc8c64e95e436");
}

}  // namespace
}  // namespace carve::codec
