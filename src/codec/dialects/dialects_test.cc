#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codec/dialects/dialect.h"

namespace carve::codec {
namespace {

using testing::HasSubstr;
using Amounts = std::map<std::string, std::string>;

PodAsk of(ContainerAsk container) {
  PodAsk pod;
  pod.containers.push_back(std::move(container));
  return pod;
}

PodAsk pod(Amounts limits) { return of({"c", ContainerKind::kMain, {}, std::move(limits)}); }

std::string meaning(const PodAsk& pod, const DialectSettings& settings = {}) {
  const auto parts = requests_of(pod, settings);
  if (!parts) return parts.error().what;
  std::string text;
  for (const auto& part : *parts) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "; ", part.part, to_human(part.request));
  }
  return text;
}

TEST(Dialects, EveryDialectHasItsMeaning) {
  EXPECT_EQ(meaning(pod({{"elasticgpu.io/gpu-memory", "4096"}, {"elasticgpu.io/gpu-core", "30"}})),
            "c=4 GiB, compute 30, burst");
  EXPECT_EQ(meaning(pod({{"elasticgpu.io/gpu-memory", "256"}})), "c=256 MiB, besteffort");
  EXPECT_EQ(meaning(pod({{"elasticgpu.io/gpu-core", "200"}})), "c=2 whole cards");
  EXPECT_EQ(meaning(pod({{"elasticgpu.io/gpu", "2"}})), "c=2 whole cards");
  EXPECT_EQ(meaning(pod({{"elasticgpu.io/gpu", "2"}, {"elasticgpu.io/gpu-core", "30"}})),
            "c=2 cards × (30% of the memory, compute 30, burst)");
  EXPECT_EQ(meaning(pod({{"elasticgpu.io/gpu-memory", "4k"}})), "c=3.9 GiB, besteffort")
      << "the API server's form of 4000";
  EXPECT_EQ(meaning(pod({{"aliyun.com/gpu-mem", "3"}})), "c=3 GiB, besteffort");
  EXPECT_EQ(meaning(pod({{"aliyun.com/gpu-mem", "512"}}), {Bytes::mib(1), true}),
            "c=512 MiB, besteffort");
  EXPECT_EQ(meaning(pod({{"nvidia.com/gpu", "2"}})), "c=2 whole cards");
  EXPECT_EQ(meaning(pod({{"nvidia.com/gpu", "2"}}), {Bytes::gib(1), false}), "")
      << "another plugin serves it in this installation";
  EXPECT_EQ(meaning(pod({{"cpu", "2"}, {"memory", "1Gi"}})), "");
  EXPECT_EQ(meaning(pod({{"nvidia.com/gpu", "0"}})), "") << "charts write zero for none";
}

TEST(Dialects, GpushareSpreadsOverTheNumberOfCardsInItsLabel) {
  PodAsk many = pod({{"aliyun.com/gpu-mem", "8"}});
  many.labels["aliyun.com/gpu-count"] = "2";
  EXPECT_EQ(meaning(many), "c=2 cards × (4 GiB, besteffort)");
  many.containers[0].limits["aliyun.com/gpu-mem"] = "9";
  EXPECT_EQ(meaning(many),
            "container c: aliyun.com/gpu-mem: 9 GiB cannot be divided among 2 cards; legal: "
            "multiples of 2");
}

TEST(Dialects, EveryContainerIsReadSeparately) {
  PodAsk two = pod({{"nvidia.com/gpu", "2"}});
  two.containers.push_back({"d", ContainerKind::kMain, {}, {{"aliyun.com/gpu-mem", "1"}}});
  two.containers.push_back({"plain", ContainerKind::kMain, {}, {}});
  two.containers.push_back({"i", ContainerKind::kInit, {}, {{"elasticgpu.io/gpu-core", "10"}}});
  two.containers.push_back({"s", ContainerKind::kSidecar, {}, {{"elasticgpu.io/gpu-core", "10"}}});
  const auto parts = requests_of(two, {});
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 4U);
  EXPECT_EQ((*parts)[0].request.dialect, "nvidia");
  EXPECT_EQ((*parts)[1].request.dialect, "gpushare");
  EXPECT_EQ((*parts)[0].together, "");
  EXPECT_EQ((*parts)[1].together, "gpushare") << "its containers share one card";
  EXPECT_EQ((*parts)[2].phase, Phase::kInit);
  EXPECT_EQ((*parts)[3].phase, Phase::kRun) << "a sidecar runs concurrently with the others";
}

TEST(Dialects, IllegalRequestsAreRefusedWithFieldValueUnitAndLegalValues) {
  EXPECT_EQ(meaning(pod({{"aliyun.com/gpu-mem", "10G"}})),
            "container c: aliyun.com/gpu-mem: \"10G\" is 10000000000 GiB, out of range; legal: 1 to "
            "4096 GiB; the unit of this cluster is GiB: dialects.gpushare-unit in ConfigMap carve-cluster, GiB or MiB");
  EXPECT_THAT(meaning(pod({{"aliyun.com/gpu-mem", "5500m"}})), HasSubstr("is not a whole number"))
      << "the API server's form of 5.5";
  EXPECT_THAT(meaning(pod({{"aliyun.com/gpu-mem", "5.5"}})),
              HasSubstr("\"5.5\" is not a whole number"));
  EXPECT_THAT(meaning(pod({{"elasticgpu.io/gpu-core", "150"}})), HasSubstr("150"));
  EXPECT_THAT(
      meaning(pod({{"elasticgpu.io/gpu-core", "200"}, {"elasticgpu.io/gpu-memory", "4096"}})),
      HasSubstr("cannot be combined"));
  EXPECT_THAT(meaning(pod({{"nvidia.com/gpu", "17"}})), HasSubstr("1 to 16 whole cards"));
  EXPECT_THAT(meaning(pod({{"nvidia.com/gpu", "-1"}})), HasSubstr("nvidia.com/gpu"));
  EXPECT_THAT(meaning(pod({{"nvidia.com/gpu", "1"}, {"aliyun.com/gpu-mem", "3"}})),
              HasSubstr("one dialect"));
}

TEST(Dialects, RequestsWithoutLimitsOrDifferentFromThemAreRefused) {
  PodAsk one = of({"c", ContainerKind::kMain, {{"nvidia.com/gpu", "1"}}, {}});
  EXPECT_EQ(meaning(one),
            "container c: nvidia.com/gpu: \"1\" is set only in requests; set it in limits "
            "(requests may repeat it)");
  one.containers[0].limits["nvidia.com/gpu"] = "2";
  EXPECT_EQ(meaning(one),
            "container c: nvidia.com/gpu: requests has \"1\", limits has \"2\"; they must be equal");
  PodAsk twice = of({"c", ContainerKind::kMain, {{"aliyun.com/gpu-mem", "1024"}}, {{"aliyun.com/gpu-mem", "1Ki"}}});
  EXPECT_EQ(meaning(twice), "c=1 TiB, besteffort") << "amounts are compared, not spellings";
  one.containers[0].requests["nvidia.com/gpu"] = "2";
  EXPECT_EQ(meaning(one), "c=2 whole cards");
}

TEST(Dialects, PreferencesAreAnnotationsWithLegalValues) {
  PodAsk one = pod({{"elasticgpu.io/gpu-memory", "4096"}, {"elasticgpu.io/gpu-core", "30"}});
  one.annotations = {{"elasticgpu.io/share-class", "fixed"},
                     {"elasticgpu.io/priority-class", "online"}};
  const auto parts = requests_of(one, {});
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0].request.share, ShareClass::kFixed);
  EXPECT_EQ((*parts)[0].request.priority, PriorityClass::kOnline);
  one.annotations = {{"elasticgpu.io/share-class", "most"},
                     {"elasticgpu.io/priority-class", "first"}};
  EXPECT_EQ(meaning(one),
            "container c: elasticgpu.io/share-class: \"most\" is not a class; legal: fixed, burst, "
            "besteffort or node; "
            "container c: elasticgpu.io/priority-class: \"first\" is not a class; legal: online, "
            "standard or offline");
}

TEST(Dialects, ACoreLimitIsAnAnnotation) {
  PodAsk one = pod({{"elasticgpu.io/gpu-memory", "4096"}, {"elasticgpu.io/gpu-core", "30"}});
  one.annotations = {{"elasticgpu.io/core-limit", "60"}};
  EXPECT_EQ(meaning(one), "c=4 GiB, compute 30 to 60, burst");
  one.annotations = {{"elasticgpu.io/core-limit", "100"}};
  EXPECT_EQ(meaning(one), "c=4 GiB, compute 30, burst");
  one.annotations = {{"elasticgpu.io/core-limit", "20"}};
  EXPECT_THAT(meaning(one), HasSubstr("core-limit: 20 is below the 30 hundredths that are requested"));
  one.annotations = {{"elasticgpu.io/core-limit", "60"}, {"elasticgpu.io/share-class", "fixed"}};
  EXPECT_THAT(meaning(one), HasSubstr("core-limit: 60 together with share class fixed"));
  for (const char* wrong : {"", "0", "101", "60%", "-1", "6.5"}) {
    one.annotations = {{"elasticgpu.io/core-limit", wrong}};
    EXPECT_THAT(meaning(one), HasSubstr("elasticgpu.io/core-limit")) << wrong;
  }
  PodAsk whole = pod({{"elasticgpu.io/gpu", "1"}});
  whole.annotations = {{"elasticgpu.io/core-limit", "60"}};
  EXPECT_EQ(meaning(whole), "c=1 whole card") << "as with the share class";
}

TEST(Dialects, TflopsAreComputeOfAnyModel) {
  const auto native = [](std::map<std::string, std::string> amounts) {
    std::map<std::string, std::string> limits;
    for (const auto& [name, amount] : amounts) limits["elasticgpu.io/" + name] = amount;
    return meaning(pod(limits));
  };
  EXPECT_EQ(native({{"gpu-memory", "4096"}, {"gpu-tflops", "20"}}), "c=4 GiB, compute 20 TFLOPS, burst");
  EXPECT_EQ(native({{"gpu", "2"}, {"gpu-memory", "4096"}, {"gpu-tflops", "20"}}),
            "c=2 cards × (4 GiB, compute 20 TFLOPS, burst)");
  EXPECT_EQ(native({{"gpu-memory", "4096"}, {"gpu-core", "0"}, {"gpu-tflops", "20"}}),
            "c=4 GiB, compute 20 TFLOPS, burst")
      << "a chart's zero";
  EXPECT_EQ(native({{"gpu-memory", "4096"}, {"gpu-tflops", "0"}, {"gpu", "0"}}), "c=4 GiB, besteffort");
  EXPECT_THAT(native({{"gpu-tflops", "20"}}), HasSubstr("gpu-tflops without elasticgpu.io/gpu-memory"));
  EXPECT_THAT(native({{"gpu-memory", "4096"}, {"gpu-core", "30"}, {"gpu-tflops", "20"}}),
              HasSubstr("both are compute; use one"));
  EXPECT_THAT(native({{"gpu-memory", "4096"}, {"gpu-tflops", "10001"}}), HasSubstr("1 to 10000 TFLOPS"));
  EXPECT_THAT(native({{"gpu-memory", "4096"}, {"gpu-tflops", "1.5"}}), HasSubstr("gpu-tflops"));

  EXPECT_EQ(meaning(pod({{"aliyun.com/gpu-mem", "4"}, {"aliyun.com/gpu-core.tflops", "20"}})),
            "c=4 GiB, compute 20 TFLOPS, node");
  EXPECT_THAT(meaning(pod({{"aliyun.com/gpu-core.tflops", "20"}})),
              HasSubstr("aliyun.com/gpu-core.tflops without aliyun.com/gpu-mem"));
  EXPECT_THAT(meaning(pod({{"aliyun.com/gpu-mem", "4"},
                           {"aliyun.com/gpu-core.tflops", "20"},
                           {"aliyun.com/gpu-core.percentage", "20"}})),
              HasSubstr("both are compute; use one"));
}

TEST(Dialects, OnlyAPodWithSlotsRequestsCardsOfCarve) {
  const auto asks = [](const Amounts& limits) { return requests_by_slots(pod(limits), {}); };
  const Amounts whole{{"nvidia.com/gpu", "2"}};
  const auto with = [](Amounts limits, const std::string& slots) {
    limits["elasticgpu.io/slot"] = slots;
    return limits;
  };
  EXPECT_EQ(*asks(with(whole, "2")), *requests_of(pod(whole), {}));
  for (const auto& limits : {whole, with(whole, "0"), Amounts{{"nvidia.com/gpu", "two"}}}) {
    const auto parts = asks(limits);
    ASSERT_TRUE(parts) << parts.error().what;
    EXPECT_TRUE(parts->empty());
  }
  EXPECT_FALSE(asks(with({{"nvidia.com/gpu", "two"}}, "1")));
}

TEST(Dialects, NodesHaveTheTotalsOfTheDialectsThatAreServed) {
  const auto units = [](const DialectSettings& settings) {
    std::map<std::string_view, std::uint64_t> all;
    for (const auto& one : names_on_nodes(settings))
      all[one.name] = one.unit == nullptr ? 0 : one.unit(settings).whole_mib();
    return all;
  };
  DialectSettings settings;
  settings.nvidia_by_slots = false;
  settings.gpushare_unit = Bytes::mib(1);
  settings.volcano_unit = Bytes::mib(10);
  auto served = units(settings);
  EXPECT_EQ(served.at("elasticgpu.io/gpu-memory"), 1U);
  EXPECT_EQ(served.at("aliyun.com/gpu-mem"), 1U);
  EXPECT_EQ(served.at("volcano.sh/gpu-memory"), 10U);
  EXPECT_EQ(served.at("tencent.com/vcuda-memory"), 256U);
  EXPECT_FALSE(served.contains("nvidia.com/gpu"));
  EXPECT_FALSE(served.contains("deepomatic.com/shared-gpu"));
  settings.nvidia_by_slots = true;
  settings.deepomatic_containers = 4;
  served = units(settings);
  EXPECT_TRUE(served.contains("nvidia.com/gpu"));
  EXPECT_TRUE(served.contains("deepomatic.com/shared-gpu"));
}

TEST(Dialects, ANameBelongsToTheDialectOfRequestsOrNodes) {
  EXPECT_EQ(owner_of("elasticgpu.io/gpu-core")->name, "native");
  EXPECT_EQ(owner_of("aliyun.com/gpu-mem")->name, "gpushare");
  EXPECT_EQ(owner_of("aliyun.com/gpu-count")->name, "gpushare") << "not requested; its plugin is gpushare";
  EXPECT_EQ(owner_of("nvidia.com/gpu")->name, "nvidia");
  EXPECT_EQ(owner_of("elasticgpu.io/slot"), nullptr);
}

TEST(PodAskJson, IsReadAsTheApiServerWritesIt) {
  const auto ask =
      parse_pod_ask(R"({"metadata":{"labels":{"a":"b"},"annotations":{"x":"y"}},"spec":{
    "initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}],
    "containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":2,"cpu":"500m"},"requests":{"cpu":"1"}}}]}})");
  ASSERT_TRUE(ask) << ask.error().what;
  ASSERT_EQ(ask->containers.size(), 3U);
  EXPECT_EQ(ask->containers[0].kind, ContainerKind::kInit);
  EXPECT_EQ(ask->containers[1].kind, ContainerKind::kSidecar);
  EXPECT_EQ(ask->containers[2].limits.at("nvidia.com/gpu"), "2");
  EXPECT_EQ(ask->containers[2].requests.at("cpu"), "1");
  EXPECT_EQ(ask->labels.at("a"), "b");
  EXPECT_FALSE(parse_pod_ask("[]"));
  EXPECT_FALSE(parse_pod_ask("{"));
  EXPECT_FALSE(parse_pod_ask(R"({"spec":{"containers":[{}]}})"));
  EXPECT_TRUE(parse_pod_ask("{}"));
}

TEST(Dialects, AFaultyValueIsQuotedUpToALimit) {
  const std::string longest(100, 'z');
  const auto quoted = [](const PodAsk& ask) {
    const std::string what = meaning(ask);
    return std::count(what.begin(), what.end(), 'z');
  };
  const std::string memory = "elasticgpu.io/gpu-memory";
  EXPECT_EQ(quoted(of({"c", ContainerKind::kMain, {{memory, longest}}, {}})), 64) << "only in requests";
  EXPECT_EQ(quoted(of({"c", ContainerKind::kMain, {{memory, longest}}, {{memory, "4096"}}})), 64);
  EXPECT_EQ(quoted(of({"c", ContainerKind::kMain, {{memory, "4096"}}, {{memory, longest}}})), 64);
  for (const char* annotation : {"elasticgpu.io/share-class", "elasticgpu.io/priority-class"}) {
    PodAsk ask = pod({{memory, "4096"}, {"elasticgpu.io/gpu-core", "30"}});
    ask.annotations[annotation] = longest;
    EXPECT_EQ(quoted(ask), 64) << annotation;
  }
}

TEST(Dialects, AGpushareAmountIsAtMostTheLargestCard) {
  const auto amount = [](std::uint64_t gib, const std::string& cards) {
    PodAsk ask = pod({{"aliyun.com/gpu-mem", std::to_string(gib)}});
    ask.labels["aliyun.com/gpu-count"] = cards;
    return requests_of(ask, {}).has_value();
  };
  EXPECT_TRUE(amount(4096, "1"));
  EXPECT_FALSE(amount(4097, "1"));
  EXPECT_TRUE(amount(2 * 4096, "2"));
  EXPECT_FALSE(amount(2 * 4096 + 2, "2"));
  EXPECT_TRUE(amount(16, "16"));
  EXPECT_FALSE(amount(17, "17"));
  EXPECT_FALSE(amount(17, "2")) << "not divisible into equal parts";
}

TEST(Dialects, ANativeAmountOfMemoryIsAtMostFourTebibytes) {
  const auto reads = [](const std::string& name, const std::string& amount) {
    return requests_of(pod({{name, amount}}), {}).has_value();
  };
  EXPECT_TRUE(reads("elasticgpu.io/gpu-memory", "4194304"));
  EXPECT_FALSE(reads("elasticgpu.io/gpu-memory", "4194305"));
  EXPECT_TRUE(reads("elasticgpu.io/gpu-core", "1600"));
  EXPECT_FALSE(reads("elasticgpu.io/gpu-core", "1700"));
  EXPECT_TRUE(reads("elasticgpu.io/gpu", "16"));
  EXPECT_FALSE(reads("elasticgpu.io/gpu", "17"));
  EXPECT_TRUE(reads("nvidia.com/gpu", "16"));
  EXPECT_FALSE(reads("nvidia.com/gpu", "17"));
}

}  // namespace
}  // namespace carve::codec
