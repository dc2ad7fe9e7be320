#include "app/control/admission/admission.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "app/control/testing/json_patch.h"
#include "codec/base64.h"
#include "codec/record.h"

namespace carve::control {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// An answer as the API server reads it.
struct Answer {
  bool allowed = false;
  std::string refusal;
  std::string patch = "[]";
  std::vector<std::string> warnings;
};

Answer read(const std::string& text) {
  Answer answer;
  const auto value = json::parse(text);
  const auto& response = value.at("response").as_object();
  answer.allowed = response.at("allowed").as_bool();
  if (!answer.allowed)
    answer.refusal = std::string(response.at("status").at("message").as_string());
  if (const auto* patch = response.if_contains("patch"))
    answer.patch = *codec::decode_base64(std::string(patch->as_string()));
  if (const auto* warnings = response.if_contains("warnings")) {
    for (const auto& one : warnings->as_array()) answer.warnings.emplace_back(one.as_string());
  }
  return answer;
}

std::string call(const json::value& object, const std::string& operation = "CREATE",
                 const std::string& sub = "", const json::value& old = nullptr,
                 const std::string& user = "ann") {
  return json::serialize(json::object{
      {"apiVersion", "admission.k8s.io/v1"},
      {"kind", "AdmissionReview"},
      {"request",
       json::object{
           {"uid", "r"},
           {"operation", operation},
           {"subResource", sub},
           {"resource", json::object{{"group", ""}, {"version", "v1"}, {"resource", "pods"}}},
           {"userInfo", json::object{{"username", user}}},
           {"object", object},
           {"oldObject", old}}}});
}

/// A pod with one container c, with further members of the container, the metadata and the spec.
json::value pod(const std::string& container, const std::string& meta = "",
                const std::string& spec = "") {
  return json::parse(R"({"metadata":{"name":"p")" + meta +
                     R"(},"spec":{"containers":[{"name":"c")" + container + "}]" + spec + "}}");
}

std::string limits(const std::string& all) { return R"(,"resources":{"limits":{)" + all + "}}"; }
std::string env(const std::string& all) { return R"(,"env":[)" + all + "]"; }

class AdmissionTest : public ::testing::Test {
 protected:
  Answer mutate(const json::value& object) const { return read(admission_.mutate(call(object))); }
  /// The object after the mutating webhook; the test fails if the webhook refuses it.
  json::value mutated(json::value object) const {
    const auto answer = mutate(object);
    EXPECT_TRUE(answer.allowed) << answer.refusal;
    EXPECT_TRUE(testing::apply_patch(object, answer.patch)) << answer.patch;
    const auto again = mutate(object).patch;
    EXPECT_TRUE(again.empty() || again == "[]") << "the second review changes the object: " << again;
    return object;
  }
  Admission admission_{{}, {"carve-scheduler", VisibleDevices::kVoid}};
};

TEST_F(AdmissionTest, AddsSlotsSchedulerAndParsedRequestToAPodThatRequestsCards) {
  const auto done =
      mutated(pod(limits(R"("elasticgpu.io/gpu-memory":"4096","elasticgpu.io/gpu-core":"30")"), "",
                  R"(,"schedulerName":"default-scheduler")"));
  EXPECT_EQ(json::serialize(done),
            R"({"metadata":{"name":"p","annotations":{"elasticgpu.io/understood":"c: 4 GiB, compute 30, burst",)"
            R"("elasticgpu.io/admitted":"c:elasticgpu.io/gpu-core=30 c:elasticgpu.io/gpu-memory=4096 )"
            R"(c:elasticgpu.io/slot=1"}},)"
            R"("spec":{"containers":[{"name":"c","resources":{"limits":{"elasticgpu.io/gpu-memory":"4096",)"
            R"("elasticgpu.io/gpu-core":"30","elasticgpu.io/slot":"1"},"requests":{"elasticgpu.io/slot":"1"}}}],)"
            R"("schedulerName":"carve-scheduler"}})");
}

// The API server compares these words with the final pod (deploy/control/webhook.yaml).
TEST_F(AdmissionTest, WritesWhatTheValidatingWebhookWouldCheck) {
  const auto admitted = [&](const char* meta, const std::string& containers) {
    const auto done = mutated(json::parse(fmt::format(
        R"({{"metadata":{{{}}},"spec":{{"containers":[{}]}}}})", meta, containers)));
    const auto* annotations = done.at("metadata").as_object().if_contains("annotations");
    if (annotations == nullptr) return std::string("(none)");
    const auto* words = annotations->as_object().if_contains("elasticgpu.io/admitted");
    return words == nullptr ? std::string("(none)") : std::string(words->as_string());
  };
  const std::string card = R"({"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}}})";
  EXPECT_EQ(admitted("", card), "c:elasticgpu.io/slot=1 c:nvidia.com/gpu=1");
  EXPECT_EQ(admitted("", card + R"(,{"name":"d","resources":{"limits":{"example.com/nic":"2","cpu":"1"}}})"),
            "c:elasticgpu.io/slot=1 c:nvidia.com/gpu=1 d:example.com/nic=2");
  EXPECT_EQ(admitted(R"("annotations":{"elasticgpu.io/placement":"spread","k":"v","carve.elasticgpu.io/record":"x",)"
                     R"("elasticgpu.io/container-c":"0"},"labels":{"aliyun.com/gpu-count":"1"})", card),
            "c:elasticgpu.io/slot=1 c:nvidia.com/gpu=1 elasticgpu.io/placement=spread aliyun.com/gpu-count=1");
  EXPECT_EQ(admitted(R"("annotations":{"elasticgpu.io/admitted":"c:elasticgpu.io/slot=9"})", card),
            "c:elasticgpu.io/slot=1 c:nvidia.com/gpu=1") << "a user's own words are replaced";
  EXPECT_EQ(admitted(R"("annotations":{"elasticgpu.io/note":"a c:g=9","elasticgpu.io/admitted":"x"})", card), "(none)")
      << "a value with a space would add a word";
  EXPECT_EQ(admitted(R"("annotations":{"elasticgpu.io/admitted":"x"})", R"({"name":"c"})"), "(none)");
}

TEST_F(AdmissionTest, AddsOneSlotPerCardOfEachContainer) {
  const auto done =
      mutated(json::parse(R"({"metadata":{"labels":{"aliyun.com/gpu-count":"2"}},"spec":{
    "initContainers":[{"name":"i","resources":{"limits":{"nvidia.com/gpu":"3"}}},
                      {"name":"s","restartPolicy":"Always","resources":{"limits":{"elasticgpu.io/gpu-core":"10"}}}],
    "containers":[{"name":"c","resources":{"limits":{"aliyun.com/gpu-mem":"8"},"requests":{"aliyun.com/gpu-mem":"8"}}},
                  {"name":"plain"}]}})"));
  const auto slots = [&](const char* list, std::size_t index) {
    return std::string(done.at("spec")
                           .at(list)
                           .as_array()[index]
                           .at("resources")
                           .at("limits")
                           .at("elasticgpu.io/slot")
                           .as_string());
  };
  EXPECT_EQ(slots("initContainers", 0), "3");
  EXPECT_EQ(slots("initContainers", 1), "1");
  EXPECT_EQ(slots("containers", 0), "2");
  EXPECT_EQ(json::serialize(done.at("spec").at("containers").as_array()[1]), R"({"name":"plain"})");
  EXPECT_EQ(done.at("metadata").at("annotations").at("elasticgpu.io/understood").as_string(),
            "i: 3 whole cards; s: 10% of the memory, compute 10, burst; c: 2 cards × (4 GiB, "
            "besteffort)");
}

TEST_F(AdmissionTest, CorrectsSlotsThatATenantWrote) {
  const auto done = mutated(pod(limits(R"("nvidia.com/gpu":"2","elasticgpu.io/slot":"60")")));
  EXPECT_EQ(done.at_pointer("/spec/containers/0/resources/limits/elasticgpu.io~1slot").as_string(),
            "2");
}

TEST_F(AdmissionTest, SetsTheSchedulerOnlyForPodsOfTheDefaultScheduler) {
  const auto asks = limits(R"("nvidia.com/gpu":"1")");
  EXPECT_EQ(mutated(pod(asks, "", R"(,"schedulerName":"volcano")"))
                .at("spec")
                .at("schedulerName")
                .as_string(),
            "volcano");
  EXPECT_EQ(mutated(pod(asks)).at("spec").at("schedulerName").as_string(), "carve-scheduler");
  EXPECT_FALSE(mutated(pod(asks, "", R"(,"nodeName":"n1")"))
                   .at("spec")
                   .as_object()
                   .contains("schedulerName"));
  EXPECT_THAT(mutate(pod(asks, "", R"(,"nodeName":"n1")")).warnings,
              ElementsAre(HasSubstr("the pod bypasses the scheduler")));
  const Admission shared{{}, {"", VisibleDevices::kVoid}};
  EXPECT_THAT(read(shared.mutate(call(pod(asks)))).patch, Not(HasSubstr("schedulerName")));
}

TEST_F(AdmissionTest, LeavesUnrelatedPodsUnchanged) {
  EXPECT_EQ(mutate(pod(limits(R"("cpu":"1")"))).patch, "[]");
  EXPECT_EQ(mutate(pod(env(R"({"name":"A","value":"b"})"))).patch, "[]");
  const Admission dra{{Bytes::gib(1), false}, {}};
  EXPECT_EQ(read(dra.mutate(call(pod(limits(R"("nvidia.com/gpu":"1")") +
                                     env(R"({"name":"NVIDIA_VISIBLE_DEVICES","value":"all"})")))))
                .patch,
            "[]")
      << "another system's card on this installation, with that system's variable";
  for (const char* operation : {"DELETE", "CONNECT"}) {
    const auto answer = read(admission_.mutate(call(nullptr, operation)));
    EXPECT_TRUE(answer.allowed) << answer.refusal;
  }
}

TEST_F(AdmissionTest, RemovesAForgedRecordAndForgedProjections) {
  const auto brought =
      pod("", R"(,"annotations":{"mine":"1","carve.elasticgpu.io/record":"{}",)"
              R"("ALIYUN_COM_GPU_MEM_IDX":"0","ALIYUN_COM_GPU_MEM_ASSUME_TIME":"1",)"
              R"("scheduler.framework.gpushare.allocation":"{}"})");
  EXPECT_EQ(json::serialize(mutated(brought).at("metadata").at("annotations")), R"({"mine":"1"})");
  EXPECT_THAT(mutate(brought).warnings, Not(IsEmpty()));
  const auto left = read(admission_.validate(call(brought)));
  EXPECT_FALSE(left.allowed);
  EXPECT_THAT(left.refusal, HasSubstr("carve.elasticgpu.io/record: only carve-control may write it"));
}

TEST_F(AdmissionTest, RemovesTheCardChoiceOfAnOlderScheduler) {
  const auto brought = pod(limits(R"("elasticgpu.io/gpu-core":"30")"),
                           R"(,"annotations":{"elasticgpu.io/container-c":"0","mine":"1"})");
  const auto done = mutated(brought);
  EXPECT_FALSE(done.at("metadata").at("annotations").as_object().contains("elasticgpu.io/container-c"));
  EXPECT_TRUE(done.at("metadata").at("annotations").as_object().contains("mine"));
  EXPECT_THAT(mutate(brought).warnings,
              ElementsAre("annotation elasticgpu.io/container-c: removed; Carve chooses the cards"));
  EXPECT_THAT(read(admission_.validate(call(brought))).refusal,
              HasSubstr("elasticgpu.io/container-c: only carve-control may write it"));
}

// All three spellings, with the dialect's own unit in the text.
TEST_F(AdmissionTest, RefusesTheSameErrorsInEachSpelling) {
  struct Spelling {
    std::string name;
    std::string unit;
    std::string most;
  };
  for (const auto& [name, unit, most] : std::vector<Spelling>{{"elasticgpu.io/gpu-memory", "MiB", "4194304"},
                                                              {"elasticgpu.io/gpu", "cards", "16"},
                                                              {"aliyun.com/gpu-mem", "GiB", "4096"},
                                                              {"nvidia.com/gpu", "whole cards", "16"}}) {
    const auto amount = [&, key = name](const char* value) { return fmt::format(R"("{}":"{}")", key, value); };
    const auto refusal = [&](const std::string& resources) {
      const auto answer = mutate(pod(resources));
      EXPECT_FALSE(answer.allowed) << resources;
      return answer.refusal;
    };
    const std::string start = "carve: container c: " + name + ": ";
    const std::string legal = fmt::format("legal: 1 to {} {}", most, unit);
    EXPECT_EQ(refusal(R"(,"resources":{"requests":{)" + amount("3") + "}}"),
              start + "\"3\" is set only in requests; set it in limits (requests may repeat it)");
    EXPECT_EQ(refusal(R"(,"resources":{"requests":{)" + amount("1") + R"(},"limits":{)" + amount("2") + "}}"),
              start + "requests has \"1\", limits has \"2\"; they must be equal");
    EXPECT_THAT(refusal(limits(amount("5500m"))), HasSubstr("\"5500m\" is not a whole number; " + legal));
    EXPECT_THAT(refusal(limits(amount("10G"))),
                HasSubstr("\"10G\" is 10000000000 " + unit + ", out of range; " + legal));
  }
  EXPECT_THAT(mutate(pod(limits(R"("elasticgpu.io/gpu-core":"5500m")"))).refusal,
              HasSubstr("\"5500m\" is not a whole number"));
  EXPECT_THAT(mutate(pod(limits(R"("elasticgpu.io/gpu-core":"10G")"))).refusal, HasSubstr("10000000000 hundredths"));
  for (const char* name : {"elasticgpu.io/gpu", "nvidia.com/gpu"}) {
    EXPECT_THAT(mutate(pod(limits(fmt::format(R"("{}":"17")", name)))).refusal, HasSubstr("\"17\""));
    EXPECT_TRUE(mutate(pod(limits(fmt::format(R"("{}":"16")", name)))).allowed);
  }
  EXPECT_THAT(
      mutate(pod(limits(R"("aliyun.com/gpu-mem":"17")"), R"(,"labels":{"aliyun.com/gpu-count":"17"})")).refusal,
      HasSubstr("aliyun.com/gpu-count: \"17\""));
}

TEST_F(AdmissionTest, RefusesClaimsTogetherWithCardsInOneContainer) {
  const auto both = [](const std::string& amounts) {
    return pod(R"(,"resources":{"claims":[{"name":"gpu"},{"name":"nic","request":"port"}],"limits":{)" + amounts +
               "}}");
  };
  EXPECT_EQ(mutate(both(R"("elasticgpu.io/gpu-memory":"4096","elasticgpu.io/gpu-core":"30")")).refusal,
            "carve: container c: resources.claims (gpu, nic) together with elasticgpu.io/gpu-memory, "
            "elasticgpu.io/gpu-core: ambiguous; a container may use only one of them. Request cards by the claim "
            "alone, or remove the claim; move a claim for another kind of device to another container of the pod");
  for (const char* amounts : {R"("aliyun.com/gpu-mem":"3")", R"("nvidia.com/gpu":"1")"}) {
    EXPECT_THAT(mutate(both(amounts)).refusal, HasSubstr("resources.claims (gpu, nic) together with "));
    EXPECT_FALSE(read(admission_.validate(call(both(amounts)))).allowed);
  }
  EXPECT_TRUE(mutate(both(R"("cpu":"1")")).allowed);
  EXPECT_TRUE(mutate(both(R"("nvidia.com/gpu":"0")")).allowed) << "zero requests nothing";
  EXPECT_TRUE(mutate(json::parse(R"({"metadata":{"name":"p"},"spec":{"containers":[
    {"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}}},
    {"name":"d","resources":{"claims":[{"name":"nic"}]}}]}})"))
                  .allowed);
}

TEST_F(AdmissionTest, AContainerWithAClaimGetsASlot) {
  const auto claimed = [&](const std::string& annotations) {
    return mutate(pod("", R"(,"annotations":{)" + annotations + "}"));
  };
  const auto answer = claimed(R"("elasticgpu.io/egpuc-c":"k")");
  EXPECT_EQ(answer.refusal, "");
  EXPECT_THAT(answer.patch, HasSubstr(R"(/resources/limits/elasticgpu.io~1slot","value":"1")"));
  EXPECT_THAT(answer.patch, HasSubstr(R"("path":"/spec/schedulerName","value":"carve-scheduler")"));
  EXPECT_THAT(answer.patch, HasSubstr("c: claim k"));
  EXPECT_THAT(claimed(R"("elasticgpu.io/egpuc-test1":"k")").refusal,
              HasSubstr("annotation elasticgpu.io/egpuc-test1: there is no container test1; this pod has c"));
  EXPECT_THAT(claimed(R"("egpuc.elasticgpu.io/c":"")").refusal, HasSubstr("it names no ElasticGPUClaim"));
  EXPECT_THAT(claimed(R"("egpuc.elasticgpu.io/c":"k","elasticgpu.io/egpuc-c":"l")").refusal,
              HasSubstr("uses two claims"));
  EXPECT_THAT(mutate(pod(R"(,"resources":{"limits":{"aliyun.com/gpu-mem":"3"}})",
                         R"(,"annotations":{"elasticgpu.io/egpuc-c":"k"})"))
                  .refusal,
              HasSubstr("container c also requests cards by resource names"));
}

TEST_F(AdmissionTest, RefusesAPlaceholderInPlaceOfAContainerName) {
  EXPECT_EQ(mutate(pod("", R"(,"annotations":{"elasticgpu.io/egpuc-<container-name>":"claim"})")).refusal,
            "carve: annotation elasticgpu.io/egpuc-<container-name>: <container-name> is a placeholder; replace it "
            "with the name of a container (this pod has c)");
}

// The whole texts, for the native, gpushare and nvidia.com/gpu spellings.
TEST_F(AdmissionTest, RefusesEachInvalidRequestWithItsText) {
  struct Row {
    json::value object;
    std::string text;
  };
  const std::vector<Row> rows = {
      {pod(R"(,"resources":{"requests":{"aliyun.com/gpu-mem":"3"}})"),
       "carve: container c: aliyun.com/gpu-mem: \"3\" is set only in requests; set it in limits "
       "(requests may repeat "
       "it)"},
      {pod(R"(,"resources":{"requests":{"nvidia.com/gpu":"1"},"limits":{"nvidia.com/gpu":"2"}})"),
       "carve: container c: nvidia.com/gpu: requests has \"1\", limits has \"2\"; they must be "
       "equal"},
      {pod(limits(R"("aliyun.com/gpu-mem":"5500m")")),  // 5.5, as the API server normalises it
       "carve: container c: aliyun.com/gpu-mem: \"5500m\" is not a whole number; legal: 1 to "
       "4096 GiB"
       "; the unit of this cluster is GiB: dialects.gpushare-unit in ConfigMap carve-cluster, GiB or MiB"},
      {pod(limits(R"("aliyun.com/gpu-mem":"10G")")),
       "carve: container c: aliyun.com/gpu-mem: \"10G\" is 10000000000 GiB, out of range; legal: "
       "1 to 4096 GiB"
       "; the unit of this cluster is GiB: dialects.gpushare-unit in ConfigMap carve-cluster, GiB or MiB"},
      {pod(limits(R"("elasticgpu.io/gpu-memory":"4Gi")")),
       "carve: container c: elasticgpu.io/gpu-memory: \"4Gi\" is 4294967296 MiB, out of range; "
       "legal: 1 to 4194304 "
       "MiB"},
      {pod(limits(R"("aliyun.com/gpu-mem":"9")"), R"(,"labels":{"aliyun.com/gpu-count":"2"})"),
       "carve: container c: aliyun.com/gpu-mem: 9 GiB cannot be divided among 2 cards; legal: "
       "multiples of 2"},
      {pod(limits(R"("aliyun.com/gpu-mem":"9")"), R"(,"labels":{"aliyun.com/gpu-count":"two"})"),
       "carve: container c: aliyun.com/gpu-count: \"two\" is not a whole number; legal: 1 to 16 "
       "cards"},
      {pod(limits(R"("elasticgpu.io/gpu-core":"150")")),
       "carve: container c: elasticgpu.io/gpu-core: \"150\" is neither a "
       "share of one card nor a "
       "number of whole cards; legal: 1 to 100 hundredths of each card, or 200, 300, … 1600 for "
       "whole cards"},
      {pod(limits(R"("elasticgpu.io/gpu-mem":"4")")),
       "carve: container c: elasticgpu.io/gpu-mem: no such resource; valid names are "
       "elasticgpu.io/gpu-memory, "
       "elasticgpu.io/gpu-core, elasticgpu.io/gpu-tflops, elasticgpu.io/gpu"},
      {pod(limits(R"("elasticgpu.io/slot":"1")")),
       "carve: container c: elasticgpu.io/slot without a request for cards; do not request slots, Carve adds one per "
       "card (request cards with elasticgpu.io/gpu-memory, elasticgpu.io/gpu-core, elasticgpu.io/gpu-tflops, "
       "elasticgpu.io/gpu)"},
      {pod(limits(R"("nvidia.com/gpu":"1")"), R"(,"annotations":{"elasticgpu.io/share-class":3})"),
       "carve: label or annotation elasticgpu.io/share-class: its value is not a string; put it in "
       "quotes; container c: "
       "elasticgpu.io/share-class: \"3\" is not a class; legal: fixed, burst, besteffort or node"},
      {pod(limits(R"("nvidia.com/gpu":"1")"), R"(,"annotations":{"elasticgpu.io/placement":"tight"})"),
       "carve: annotation elasticgpu.io/placement: \"tight\" is not a placement; legal: binpack, spread for nodes "
       "and cards, or one for each: node:spread, card:binpack, node:spread,card:binpack"},
      {pod(limits(R"("nvidia.com/gpu":"1","aliyun.com/gpu-mem":"3")")),
       "carve: container c: nvidia.com/gpu together with aliyun.com/gpu-mem: one container must use one "
       "dialect"},
      {pod(limits(R"("nvidia.com/gpu":"1","nvidia.com/gpumem":"4096")")),
       "carve: container c: nvidia.com/gpumem: Carve does not read this name unless ConfigMap carve-cluster has "
       "dialects.hami = on; remove it, or request cards with elasticgpu.io/gpu-memory, elasticgpu.io/gpu-core, "
       "elasticgpu.io/gpu-tflops, elasticgpu.io/gpu instead of all these names"},
      {pod(limits(R"("aliyun.com/gpu-mem":"2","aliyun.com/gpu-core.share":"30")")),
       "carve: container c: aliyun.com/gpu-core.share: Carve does not read this name; remove it, or request "
       "cards with elasticgpu.io/gpu-memory, elasticgpu.io/gpu-core, elasticgpu.io/gpu-tflops, elasticgpu.io/gpu "
       "instead of all these names"},
  };
  for (const auto& row : rows) {
    const auto answer = mutate(row.object);
    EXPECT_FALSE(answer.allowed);
    EXPECT_EQ(answer.refusal, row.text);
    EXPECT_EQ(read(admission_.validate(call(row.object))).refusal, row.text);
  }
}

TEST_F(AdmissionTest, ReportsAllErrorsTogether) {
  const auto answer = mutate(json::parse(R"({"spec":{"containers":[
    {"name":"a","resources":{"limits":{"aliyun.com/gpu-mem":"10G"}}},
    {"name":"b","resources":{"limits":{"nvidia.com/gpu":"17"}}},
    {"name":"d","resources":{"limits":{"elasticgpu.io/gpus":"1"}}}]}})"));
  EXPECT_THAT(answer.refusal, HasSubstr("container a: "));
  EXPECT_THAT(answer.refusal, HasSubstr("container b: "));
  EXPECT_THAT(answer.refusal, HasSubstr("container d: "));
}

TEST_F(AdmissionTest, VoidsOrRefusesVisibleDevicesWithoutARequest) {
  const std::string all = R"({"name":"NVIDIA_VISIBLE_DEVICES","value":"all"})";
  const std::string from =
      R"({"name":"NVIDIA_VISIBLE_DEVICES","valueFrom":{"configMapKeyRef":{"name":"m","key":"k"}}})";
  const std::string void_entry = R"({"name":"NVIDIA_VISIBLE_DEVICES","value":"void"})";
  for (const std::string& entry : {all, from}) {
    const auto one = pod(env(R"({"name":"A","value":"1"},)" + entry));
    EXPECT_EQ(json::serialize(mutated(one).at_pointer("/spec/containers/0/env")),
              R"([{"name":"A","value":"1"},)" + void_entry + "]");
    EXPECT_FALSE(read(admission_.validate(call(one))).allowed);
    const Admission strict{{}, {"", VisibleDevices::kRefuse}};
    EXPECT_THAT(read(strict.mutate(call(one))).refusal,
                HasSubstr("without a request for a card; set it to void or none, or request a card"));
    const Admission lax{{}, {"", VisibleDevices::kLeave}};
    EXPECT_EQ(read(lax.mutate(call(one))).patch, "[]");
  }
  for (const char* harmless : {"void", "none", ""}) {
    const auto entry =
        std::string(R"({"name":"NVIDIA_VISIBLE_DEVICES","value":")") + harmless + "\"}";
    EXPECT_EQ(mutate(pod(env(entry))).patch, "[]");
  }
}

// A claim may be for another kind of device, and a driver that assigns cards by a claim overrides the variable by CDI.
TEST_F(AdmissionTest, VoidsVisibleDevicesTogetherWithAClaim) {
  const auto one = [](const std::string& rest) {
    return pod(R"(,"resources":{"claims":[{"name":"nic"}])" + rest + "}" +
               env(R"({"name":"NVIDIA_VISIBLE_DEVICES","value":"all"})"));
  };
  EXPECT_EQ(mutated(one("")).at_pointer("/spec/containers/0/env/0/value").as_string(), "void");
  EXPECT_THAT(mutate(one("")).warnings,
              ElementsAre(HasSubstr("together with claims, which need no variable: set to void")));
  EXPECT_THAT(read(admission_.validate(call(one("")))).refusal, HasSubstr("= \"all\" together with claims"));
  const Admission strict{{}, {"", VisibleDevices::kRefuse}};
  EXPECT_THAT(read(strict.mutate(call(one("")))).refusal, ::testing::EndsWith("set it to void or none"));
  const auto from = pod(R"(,"resources":{"claims":[{"name":"nic"}]},"envFrom":[{"configMapRef":{"name":"m"}}])");
  EXPECT_EQ(mutated(from).at_pointer("/spec/containers/0/env/0/value").as_string(), "void");
  const auto other = [&](const char* name) {
    return mutate(one(fmt::format(R"(,"limits":{{"{}":"1"}})", name))).patch;
  };
  EXPECT_THAT(other("nvidia.com/hostdev"), HasSubstr("void")) << "a network function, not a card";
  EXPECT_EQ(other("nvidia.com/mig-1g.5gb"), "[]") << "another system's card, with that system's variable";
  EXPECT_EQ(other("nvidia.com/gpu.shared"), "[]");
}

TEST_F(AdmissionTest, ReviewsEveryListOfContainers) {
  const auto done = mutated(json::parse(R"({"metadata":{"name":"p"},"spec":{
    "initContainers":[{"name":"i","env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"0"}]}],
    "containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}},
                   "env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]},
                  {"name":"d","envFrom":[{"configMapRef":{"name":"m"}}]}]}})"));
  EXPECT_EQ(done.at_pointer("/spec/initContainers/0/env/0/value").as_string(), "void");
  EXPECT_EQ(done.at_pointer("/spec/containers/0/env/0/value").as_string(), "all")
      << "in a container that requests cards the node sets the variable";
  EXPECT_EQ(done.at_pointer("/spec/containers/1/env/0/value").as_string(), "void")
      << "the container's own variable overrides the ConfigMap's";
}

TEST_F(AdmissionTest, HidesCardsFromAnEphemeralContainer) {
  auto object = json::parse(
      R"({"spec":{"containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}}}],
    "ephemeralContainers":[{"name":"e","env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]}]}})");
  const auto answer =
      read(admission_.mutate(call(object, "UPDATE", "ephemeralcontainers", object)));
  ASSERT_TRUE(testing::apply_patch(object, answer.patch));
  EXPECT_EQ(object.at_pointer("/spec/ephemeralContainers/0/env/0/value").as_string(), "void");
  EXPECT_FALSE(object.at_pointer("/spec/containers/0/resources/limits")
                   .as_object()
                   .contains("elasticgpu.io/slot"));
}

TEST_F(AdmissionTest, LeavesStaticPodsAsTheirFileSays) {
  const auto object = pod(
      limits(R"("nvidia.com/gpu":"1")"),
      R"(,"annotations":{"kubernetes.io/config.mirror":"x","carve.elasticgpu.io/record":"{}"})");
  const auto answer =
      read(admission_.mutate(call(object, "CREATE", "", nullptr, "system:node:n1")));
  EXPECT_EQ(answer.patch,
            R"([{"op":"remove","path":"/metadata/annotations/carve.elasticgpu.io~1record"}])");
  EXPECT_THAT(mutate(object).patch, HasSubstr("elasticgpu.io~1slot"))
      << "a tenant's pod is not a mirror pod, regardless of its annotations";
}

TEST_F(AdmissionTest, RefusesAnUnreadableCallWithAnEmptyUid) {
  const auto text = admission_.mutate("{");
  EXPECT_THAT(text, HasSubstr(R"("uid":"","allowed":false)"));
  EXPECT_FALSE(mutate(json::parse(R"({"spec":{"containers":[{}]}})")).allowed);
}

TEST_F(AdmissionTest, ValidatingWebhookRefusesWhatTheMutatingOneDidNotReview) {
  const auto object = pod(limits(R"("nvidia.com/gpu":"2")"));
  const auto answer = read(admission_.validate(call(object)));
  EXPECT_THAT(answer.refusal, HasSubstr("limits: elasticgpu.io/slot is \"\", must be \"2\""));
  EXPECT_THAT(answer.refusal, HasSubstr("the mutating webhook carve-admission"));
  const auto good = admission_.validate(call(mutated(object)));
  EXPECT_TRUE(read(good).allowed);
  EXPECT_THAT(good, Not(HasSubstr("patch")));
}

std::string deployed(const std::string& file) {
  std::ifstream in(CARVE_DEPLOY "/control/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

/// How often a regular expression of the manifest has the start of a key as one of its alternatives.
std::size_t alternatives(const std::string& manifest, std::string_view start) {
  std::string word;
  for (const char c : start) word += c == '.' ? std::string("[.]") : std::string(1, c);
  std::size_t found = 0;
  for (const char* before : {"(", "|"}) {
    for (const char* after : {")", "|"}) found += occurrences(manifest, before + word + after);
  }
  return found;
}

/// tools/dialect_manifests writes these lists.
TEST(Manifests, CoverEveryNameOfTheDialects) {
  const std::string webhook = deployed("webhook.yaml");
  const std::string policy = deployed("record-policy.yaml");
  for (const auto& dialect : codec::dialects()) {
    for (const auto name : codec::asked_names(dialect)) {
      const auto word = name.substr(0, 14) == "elasticgpu.io/" ? "startsWith('elasticgpu.io/')"
                                                               : "'" + std::string(name) + "'";
      EXPECT_EQ(occurrences(webhook, word), 4U)
          << name << ": limits and requests, in both configurations";
    }
    for (const auto& one : dialect.names) {
      const auto name = one.name;
      if (!one.owned) continue;
      for (const auto* file : {"scheduler/scheduler.yaml", "scheduler/default/kube-scheduler-config.yaml"})
        EXPECT_EQ(occurrences(deployed(file), " - " + std::string(name) + "\n"), 1U) << file << ": " << name;
      if (one.total != codec::Total::kNone) {
        EXPECT_EQ(occurrences(deployed("../agent-policy.yaml"), "'" + std::string(name) + "'"), 1U) << name;
      }
    }
    for (const auto label : dialect.labels) {
      EXPECT_EQ(occurrences(webhook, "'" + std::string(label) + "'"), 2U) << label;
    }
    for (const auto start : dialect.annotations) EXPECT_EQ(alternatives(webhook, start), 2U) << start;
    for (const auto start : dialect.shown) {
      EXPECT_EQ(alternatives(policy, start), 4U) << start << ": on pods and on Bindings";
      EXPECT_EQ(alternatives(webhook, start), 3U) << start;
    }
  }
}

/// The policy about events does not apply to the group events.k8s.io (matchPolicy Exact), so no role may permit it.
TEST(Manifests, PermitEventsOnlyOfTheGroupThatThePolicyGuards) {
  for (const auto* file : {"control-rbac.yaml", "../agent-rbac.yaml"}) {
    const std::string roles = deployed(file);
    EXPECT_EQ(occurrences(roles, "apiGroups: [\"\"]\n  resources: [events]\n"), 1U) << file;
    EXPECT_EQ(occurrences(roles, "events"), 1U) << file;
    EXPECT_EQ(occurrences(roles, "apiGroups: [\"*\"]"), 0U) << file;
  }
  EXPECT_EQ(occurrences(deployed("../agent-policy.yaml"), "matchPolicy: Exact"), 1U);
}

/// The API server's policy extracts the epoch from the record's text.
TEST(Manifests, MatchTheEpochsPositionInTheRecordText) {
  const std::string policy = deployed("leader-policy.yaml");
  static_assert(codec::kRecordVersion == 2, "the policy names all versions");
  EXPECT_EQ(occurrences(policy, "matches('^[{]\"v\":[12],\"epoch\":')"), 2U) << "the condition and the validation";
  EXPECT_EQ(occurrences(policy, "int(variables.record.substring(15).split(',')[0])"), 1U);
  EXPECT_EQ(occurrences(policy, "['" + std::string(codec::kRecordAnnotation) + "'].substring(15).split(',')[0])"), 1U);
  EXPECT_EQ(occurrences(policy, "'" + std::string(codec::kRecordAnnotation) + "'"), 5U);
  Record record;
  record.epoch = 17;
  record.owner = {OwnerKind::kPod, "u"};
  RecordPart part;
  part.part = "c";
  part.cards.push_back({CardId("GPU-1"), Bytes::gib(1), CoreShare(10)});
  record.parts.push_back(part);
  const auto text = codec::encode_record(record);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, ::testing::StartsWith("{\"v\":1,\"epoch\":17,"));
  record.parts.front().ceiling = CoreShare(60);
  EXPECT_THAT(*codec::encode_record(record), ::testing::StartsWith("{\"v\":2,\"epoch\":17,"));
}

json::object random_container(const std::string& name) {
  using Word = std::pair<std::string, std::string>;
  static const std::vector<Word> kAsks = {{"cpu", "1"},
                                          {"nvidia.com/gpu", "1"},
                                          {"nvidia.com/gpu", "2"},
                                          {"nvidia.com/gpu", "0"},
                                          {"aliyun.com/gpu-mem", "8"},
                                          {"aliyun.com/gpu-mem", "10G"},
                                          {"elasticgpu.io/gpu-core", "30"},
                                          {"elasticgpu.io/gpu-memory", "4k"},
                                          {"elasticgpu.io/slot", "5"},
                                          {"elasticgpu.io/typo", "1"}};
  json::object container{{"name", name}};
  if (*rc::gen::arbitrary<bool>()) {
    json::object amounts;
    for (const auto& [key, value] :
         *rc::gen::container<std::vector<Word>>(rc::gen::elementOf(kAsks))) {
      if (amounts.size() < 2) amounts[key] = value;
    }
    json::object resources{{"limits", amounts}};
    if (*rc::gen::arbitrary<bool>()) resources["requests"] = amounts;
    container["resources"] = std::move(resources);
  }
  if (*rc::gen::arbitrary<bool>()) {
    json::array entries;
    for (const auto& value : *rc::gen::container<std::vector<std::string>>(
             rc::gen::elementOf(std::vector<std::string>{"all", "void", "0,1"}))) {
      entries.push_back(json::object{{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", value}});
    }
    container["env"] = std::move(entries);
  }
  if (*rc::gen::arbitrary<bool>())
    container["envFrom"] = json::array{json::object{{"prefix", "A"}}};
  return container;
}

json::value random_pod() {
  json::object spec{{"containers", json::array{random_container("a"), random_container("b")}}};
  if (*rc::gen::arbitrary<bool>()) spec["initContainers"] = json::array{random_container("i")};
  if (*rc::gen::arbitrary<bool>()) spec["schedulerName"] = "default-scheduler";
  if (*rc::gen::arbitrary<bool>()) spec["nodeName"] = "n";
  json::object meta{{"name", "p"}};
  if (*rc::gen::arbitrary<bool>()) meta["labels"] = json::object{{"aliyun.com/gpu-count", "2"}};
  if (*rc::gen::arbitrary<bool>()) {
    meta["annotations"] = json::object{
        {"carve.elasticgpu.io/record", "x"}, {"elasticgpu.io/understood", "y"},
        {"elasticgpu.io/admitted", "z"},      {"k", "v"}};
  }
  return json::object{{"metadata", std::move(meta)}, {"spec", std::move(spec)}};
}

RC_GTEST_FIXTURE_PROP(AdmissionTest, SecondReviewChangesNothing, ()) {
  auto object = random_pod();
  const auto first = mutate(object);
  RC_CLASSIFY(first.allowed, "allowed");
  if (!first.allowed) {
    RC_ASSERT(read(admission_.validate(call(object))).refusal.find(first.refusal) == 0U);
    return;
  }
  RC_ASSERT(testing::apply_patch(object, first.patch));
  const auto second = mutate(object);
  RC_ASSERT(second.allowed);
  RC_ASSERT(second.patch == "[]");
  RC_ASSERT(read(admission_.validate(call(object))).allowed);
}

}  // namespace
}  // namespace carve::control
