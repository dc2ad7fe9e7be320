#include "app/plugins/dra_driver.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/plugins/device_names.h"
#include "app/plugins/testing/fake_node_slices.h"
#include "app/plugins/testing/small_kube.h"

namespace carve::plugins {
namespace {

using testing::HasSubstr;

constexpr const char* kPath = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c";

std::string result(const std::string& request, const std::string& device,
                   const std::string& capacity, const std::string& share = "s") {
  return fmt::format(
      R"({{"request":"{}","driver":"gpu.elasticgpu.io","pool":"n1","device":"{}","shareID":"{}",)"
      R"("consumedCapacity":{}}})",
      request, device, share, capacity);
}

std::string claim(const std::string& uid, const std::string& results,
                  const std::string& config = "") {
  return fmt::format(
      R"({{"metadata":{{"namespace":"ml","name":"c","uid":"{}"}},"status":{{"allocation":{{"devices":{{"results":[{}],)"
      R"("config":[{}]}}}},"reservedFor":[{{"resource":"pods","name":"p","uid":"u-p"}}]}}}})",
      uid, results, config);
}

std::string config(const std::string& source, const std::string& members) {
  return fmt::format(
      R"({{"source":"{}","requests":["g"],"opaque":{{"driver":"gpu.elasticgpu.io","parameters":)"
      R"({{"apiVersion":"gpu.elasticgpu.io/v1","kind":"ShareConfig",{}}}}}}})",
      source, members);
}

struct DraDriverTest : testing::Test {
  FakeNodeSlices slices{some_cards(4)};
  SmallKube kube;
  ManualClock clock;
  std::vector<std::string> lines;
  Log log{[this](std::string_view line) { lines.emplace_back(line); }};
  events::EventRecorder notices{kube, "n1", clock, log};
  DraDriver plugin{"n1", {slices, kube, notices, clock, log}};
  std::string name(int card) {
    return device_name(slices.cards().cards.at(static_cast<std::size_t>(card)).id);
  }
  std::string part = R"({"memory":"4Gi","cores":"30","slices":"1"})";  // as kube-scheduler counts it

  Result<std::vector<ClaimDevice>> prepare(const std::string& uid = "u-1") {
    return plugin.prepare({{"ml", "c", uid}}).at(uid);
  }
  std::vector<std::string> events() {
    notices.flush();
    std::vector<std::string> bodies;
    for (const auto& [what, body] : kube.writes()) {
      if (what == "create /api/v1/namespaces/ml/events") bodies.push_back(body);
    }
    return bodies;
  }
};

TEST_F(DraDriverTest, PreparesAFractionAsAllocated) {
  kube.put(kPath, claim("u-1", result("g", name(2), part)));
  const auto got = prepare();
  ASSERT_TRUE(got) << got.error().what;
  ASSERT_EQ(got->size(), 1U);
  EXPECT_EQ(got->front().requests, std::vector<std::string>{"g"});
  EXPECT_EQ(got->front().pool, "n1");
  EXPECT_EQ(got->front().device, name(2));
  EXPECT_EQ(got->front().share, "s");
  ASSERT_EQ(got->front().cdi.size(), 1U);
  const auto behind = slices.behind(got->front().cdi.front());
  ASSERT_EQ(behind.size(), 1U);
  EXPECT_EQ(behind[0].owner, (Owner{OwnerKind::kClaim, "u-1"}));
  EXPECT_EQ(behind[0].card, slices.cards().cards[2].id);
  EXPECT_EQ(behind[0].memory, Bytes::gib(4));
  EXPECT_EQ(behind[0].compute, CoreShare(30));
  EXPECT_FALSE(behind[0].whole);
  // A retry, and a retry by another driver object (a restarted agent), get the same answer and create nothing.
  DraDriver restarted("n1", {slices, kube, notices, clock, log});
  EXPECT_EQ(restarted.prepare({{"ml", "c", "u-1"}}).at("u-1")->front().cdi, got->front().cdi);
  EXPECT_EQ(slices.held().size(), 1U);
}

TEST_F(DraDriverTest, WritesThePreparedStatusOnce) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_TRUE(prepare());
  notices.flush();
  ASSERT_EQ(kube.writes().size(), 1U);
  EXPECT_EQ(kube.writes()[0].first, std::string("patch ") + kPath + "/status");
  EXPECT_THAT(kube.writes()[0].second,
              HasSubstr(R"("type":"Ready","status":"True","reason":"Prepared")"));
  EXPECT_THAT(kube.writes()[0].second,
              HasSubstr("4 GiB, compute 30, burst, standard of GPU-00000000"));
  auto with_status = claim("u-1", result("g", name(0), part));
  with_status.insert(
      with_status.rfind("\"reservedFor\""),
      fmt::format(
          R"("devices":[{{"pool":"n1","device":"{}","shareID":"s","conditions":[{{"type":"Ready",)"
          R"("status":"True"}}]}}],)",
          name(0)));
  kube.put(kPath, with_status);
  ASSERT_TRUE(prepare());
  notices.flush();
  EXPECT_EQ(kube.writes().size(), 1U);
}

TEST_F(DraDriverTest, WritesAReadyStatusOnlyAfterTheContainerHadTimeToStart) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_TRUE(prepare());
  notices.write_due();
  EXPECT_TRUE(kube.writes().empty()) << "the API server is busy with the container's start";
  clock.advance(std::chrono::seconds(2));
  notices.write_due();
  ASSERT_EQ(kube.writes().size(), 1U);
  EXPECT_THAT(kube.writes()[0].second, HasSubstr(R"("reason":"Prepared")"));
  // A refusal is written immediately, and no older status overwrites it.
  ASSERT_TRUE(prepare());
  kube.put(kPath, claim("u-1", result("g", "gpu-gone", part)) + " ");
  ASSERT_FALSE(prepare());
  notices.write_due();
  clock.advance(std::chrono::seconds(2));
  notices.write_due();
  std::vector<std::string> status;
  for (const auto& [what, body] : kube.writes()) {
    if (what == std::string("patch ") + kPath + "/status") status.push_back(body);
  }
  ASSERT_EQ(status.size(), 2U);
  EXPECT_THAT(status[1], HasSubstr(R"("reason":"Refused")"));
}

TEST_F(DraDriverTest, WritesNoStatusAfterUnprepare) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_TRUE(prepare());
  ASSERT_TRUE(plugin.unprepare({{"ml", "c", "u-1"}}).at("u-1"));
  clock.advance(std::chrono::seconds(10));
  notices.write_due();
  EXPECT_TRUE(kube.writes().empty());
}

TEST_F(DraDriverTest, RefusesAnotherClaimOfTheSameName) {
  kube.put(kPath, claim("u-2", result("g", name(0), part)));
  const auto got = prepare("u-1");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kAborted);
  EXPECT_THAT(notices.refusals(), HasSubstr("requests UID u-1, but the API server's claim of that name has UID u-2"));
  EXPECT_TRUE(slices.held().empty());
}

TEST_F(DraDriverTest, PreparesSeveralCardsAndSeveralRequests) {
  kube.put(
      kPath,
      claim("u-1", result("g", name(0), part, "s1") + "," + result("g", name(1), part, "s2") + "," +
                       result("h/big", name(3), R"({"memory":"80Gi","cores":"100"})", "s3") + "," +
                       R"({"request":"x","driver":"other.io","pool":"n1","device":"d"})"));
  const auto got = prepare();
  ASSERT_TRUE(got) << got.error().what;
  ASSERT_EQ(got->size(), 3U);
  // One CDI device contains both cards of request g. Only the first device names it, or it would be mounted twice.
  EXPECT_EQ((*got)[0].cdi.size(), 1U);
  EXPECT_TRUE((*got)[1].cdi.empty());
  EXPECT_EQ(slices.behind((*got)[0].cdi[0]).size(), 2U);
  EXPECT_EQ((*got)[2].requests, std::vector<std::string>{"h"});
  const auto whole = slices.behind((*got)[2].cdi.at(0));
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].part, "h/big");
  EXPECT_TRUE(whole[0].whole);
  EXPECT_TRUE(whole[0].exclusive);
  EXPECT_EQ(whole[0].memory, slices.cards().cards[3].memory);  // all of the card's memory, not the published whole MiB
}

TEST_F(DraDriverTest, RefusesTwoSharesOfOneCardInOneRequestAndSaysTheFix) {
  kube.put(kPath,
           claim("u-1", result("g", name(0), part, "s1") + "," + result("g", name(0), part, "s2")));
  const auto got = prepare();
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().what, HasSubstr("distinctAttribute: gpu.elasticgpu.io/uuid"));
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], HasSubstr(R"("kind":"Pod","namespace":"ml","name":"p","uid":"u-p")"));
  EXPECT_THAT(told[0], HasSubstr("SliceRefused"));
}

TEST_F(DraDriverTest, LetsTheClaimsConfigurationOverrideTheClassMemberByMember) {
  kube.put(kPath, claim("u-1", result("g", name(0), part),
                        config("FromClass", R"("shareClass":"fixed","priorityClass":"offline")") +
                            "," + config("FromClaim", R"("priorityClass":"online")")));
  ASSERT_TRUE(prepare());
  EXPECT_EQ(slices.held().at(0).share, ShareClass::kFixed);
  EXPECT_EQ(slices.held().at(0).priority, PriorityClass::kOnline);
}

TEST_F(DraDriverTest, TakesTheCoreLimitOfTheConfiguration) {
  const auto prepared_with = [&](const std::string& uid, const std::string& members, const std::string& consumed) {
    kube.put(kPath, claim(uid, result("g", name(0), consumed), config("FromClaim", members)));
    const auto got = prepare(uid);
    return got ? std::string() : got.error().what;
  };
  EXPECT_EQ(prepared_with("u-1", R"("coreLimit":60)", part), "");
  EXPECT_EQ(slices.held().at(0).ceiling, CoreShare(60));
  EXPECT_THAT(prepared_with("u-2", R"("coreLimit":20)", part),
              HasSubstr("coreLimit 20 is below the 30 hundredths that it has of the card"));
  EXPECT_THAT(prepared_with("u-3", R"("coreLimit":60,"shareClass":"fixed")", part),
              HasSubstr("coreLimit 60 with shareClass fixed; legal with burst and besteffort"));
  EXPECT_THAT(prepared_with("u-4", R"("coreLimit":0)", part), HasSubstr("coreLimit: 0 is not a whole number"));
  EXPECT_EQ(slices.held().size(), 1U);
}

TEST_F(DraDriverTest, RefusesAWrongConfigurationAndNamesItsSource) {
  kube.put(kPath, claim("u-1", result("g", name(0), part),
                        config("FromClass", R"("shareClass":"turbo")")));
  const auto got = prepare();
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().what, HasSubstr("from the DeviceClass"));
  EXPECT_THAT(got.error().what, HasSubstr("\"turbo\" is not a class"));
}

TEST_F(DraDriverTest, UndoesAPartlyPreparedClaim) {
  kube.put(kPath, claim("u-1", result("g", name(0), part) + "," + result("h", name(1), part)));
  slices.fail_prepare_of = "h";
  ASSERT_FALSE(prepare());
  EXPECT_TRUE(slices.held().empty());
  slices.fail_prepare_of.clear();
  ASSERT_TRUE(prepare());
  // Prepared before: a later failure does not undo it, because containers may run in it.
  slices.fail_prepare_of = "h";
  ASSERT_FALSE(prepare());
  EXPECT_EQ(slices.held().size(), 2U);
}

TEST_F(DraDriverTest, WritesARefusalToTheStatusAndClearsItLater) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  slices.set_health(0, {false, "XID 79: fallen off the bus"});
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(prepare());
    notices.write_due();
  }
  slices.set_health(0, {});
  ASSERT_TRUE(prepare());
  notices.flush();
  std::vector<std::string> written;
  for (const auto& [what, body] : kube.writes()) {
    if (what == std::string("patch ") + kPath + "/status") written.push_back(body);
  }
  ASSERT_EQ(written.size(), 2U);  // the kubelet's retries write nothing
  EXPECT_THAT(written[0], HasSubstr(R"("type":"Ready","status":"False","reason":"Refused")"));
  EXPECT_THAT(written[0], HasSubstr("XID 79"));
  EXPECT_THAT(written[1], HasSubstr(R"("type":"Ready","status":"True","reason":"Prepared")"));
}

TEST_F(DraDriverTest, PreparesNothingNewWhileTheNodeIsShut) {
  std::string shut;
  DraDriver told("n1", {slices, kube, notices, clock, log, [&] { return shut; }});
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  shut = "containerd 1.6.20 does not support CDI devices";
  const auto refused = told.prepare({{"ml", "c", "u-1"}}).at("u-1");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("1.6.20"));
  EXPECT_TRUE(slices.held().empty());
  shut.clear();
  EXPECT_TRUE(told.prepare({{"ml", "c", "u-1"}}).at("u-1"));
  shut = "again";  // a prepared claim is still answered
  EXPECT_TRUE(told.prepare({{"ml", "c", "u-1"}}).at("u-1"));
}

/// kube-scheduler does not count slots: with shared cards it promises more than a card has.
TEST_F(DraDriverTest, AClaimOnAFullCardFailsImmediatelyAndTheCardTakesNoNewClaims) {
  FullCards full;
  DraDriver shared("n1", {slices, kube, notices, clock, log, {}, &full});
  Slice pod;
  pod.owner = {OwnerKind::kPod, "u-s"};
  pod.part = "main";
  pod.card = slices.cards().cards[0].id;
  pod.memory = Bytes::gib(78);
  pod.compute = CoreShare(1);
  ASSERT_TRUE(slices.prepare({*record_of(0, {pod}), pod.part, "", "ml/s/main"}));
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_FALSE(shared.prepare({{"ml", "c", "u-1"}}).at("u-1"));
  EXPECT_EQ(full.cards(slices.held(), slices.cards(), clock.now()), std::set{pod.card});
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], HasSubstr("the card is full"));
  EXPECT_THAT(told[0], HasSubstr("to start it on another card, delete the pod"));
  ASSERT_TRUE(slices.unprepare(pod.owner));
  EXPECT_TRUE(shared.prepare({{"ml", "c", "u-1"}}).at("u-1"));
  EXPECT_TRUE(full.cards(slices.held(), slices.cards(), clock.now()).empty());
}

TEST_F(DraDriverTest, AnswersFromMemoryWhileTheApiServerDoesNotAnswer) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  kube.set_away(true);
  EXPECT_EQ(prepare().error().code, Code::kUnavailable);
  kube.set_away(false);
  const auto first = prepare();
  ASSERT_TRUE(first);
  kube.set_away(true);
  const auto again = prepare();  // the kubelet restarted and prepares its running pods again
  ASSERT_TRUE(again);
  EXPECT_EQ(again->front().cdi, first->front().cdi);
  EXPECT_TRUE(plugin.unprepare({{"ml", "c", "u-1"}}).at("u-1"));
  EXPECT_TRUE(slices.held().empty());
  EXPECT_FALSE(prepare());  // and the answer is forgotten
}

TEST_F(DraDriverTest, UnprepareNeedsNoDriverAndNoApiServerButWaitsForProcesses) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_TRUE(prepare());
  slices.busy = {{OwnerKind::kClaim, "u-1"}};
  slices.put_cards({});  // the GPU driver does not answer
  kube.set_away(true);
  EXPECT_EQ(plugin.unprepare({{"ml", "c", "u-1"}}).at("u-1").error().code, Code::kFailedPrecondition);
  slices.busy.clear();
  const auto both = plugin.unprepare({{"ml", "c", "u-1"}, {"ml", "d", "never-seen"}});
  EXPECT_TRUE(both.at("u-1"));
  EXPECT_TRUE(both.at("never-seen"));
}

TEST_F(DraDriverTest, RefusesWhatItCannotPrepareAndReportsItOnTheNode) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {R"({"metadata":{"name":"c","uid":"u-1"},"status":{}})", "has no allocation"},
      {claim("u-1", R"({"request":"x","driver":"other.io","pool":"n1","device":"d"})"),
       "no device of driver"},
      {claim("u-1", result("g", "gpu-gone", part)), "has no card gpu-gone"},
      {claim("u-1", R"({"request":"g","driver":"gpu.elasticgpu.io","pool":"n2","device":"gpu-1"})"),
       "pool n2"},
      {claim("u-1", result("g", name(0), R"({"memory":"90Gi","cores":"30"})")), "which has 80 GiB"},
      {claim("u-1", result("g", name(0), R"({"memory":"4Gi","cores":"130"})")),
       "legal are 1 to 100"},
      {claim("u-1", result("g", name(0), R"({"memory":"-4Gi"})")), "consumedCapacity.memory"},
      {"{", "not JSON"},
  };
  for (const auto& [object, why] : cases) {
    kube.put(kPath, object);
    const auto got = prepare();
    ASSERT_FALSE(got) << object;
    EXPECT_THAT(got.error().what, HasSubstr(why));
    EXPECT_TRUE(slices.held().empty());
    EXPECT_THAT(notices.refusals(), HasSubstr(why));  // for the Node's condition, followed by the fix
    EXPECT_THAT(notices.refusals(), testing::StartsWith("claim ml/c: "));
    EXPECT_TRUE(plugin.unprepare({{"ml", "c", "u-1"}}).at("u-1"));
    EXPECT_EQ(notices.refusals(), "");
  }
  kube.put(kPath, cases.front().first);
  ASSERT_FALSE(prepare());
  EXPECT_NE(notices.refusals(), "");
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_TRUE(prepare());
  EXPECT_EQ(notices.refusals(), "");
}

TEST_F(DraDriverTest, StartsNothingNewOnAnUnhealthyCardAndKeepsRunningClaims) {
  kube.put(kPath, claim("u-1", result("g", name(0), part)));
  ASSERT_TRUE(prepare());
  slices.set_health(0, {false, "XID 79: fallen off the bus"});
  EXPECT_TRUE(prepare());
  kube.put(kPath, claim("u-2", result("g", name(0), part)));
  const auto other = prepare("u-2");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().what, HasSubstr("XID 79"));
  EXPECT_FALSE(plugin.health().at(0).ok);
  EXPECT_TRUE(plugin.health().at(1).ok);
}

TEST_F(DraDriverTest, WritesARepeatedEventOnceAndCountsIt) {
  kube.put(kPath, claim("u-1", result("g", "gpu-gone", part)));
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(prepare());
  EXPECT_EQ(events().size(), 1U);
  // A repetition that comes too soon is counted, and written with the next one that is due.
  clock.advance(std::chrono::seconds(11));
  ASSERT_FALSE(prepare());
  notices.flush();
  std::vector<std::string> counted;
  for (const auto& [what, body] : kube.writes()) {
    if (what.starts_with("patch /api/v1/namespaces/ml/events/p.")) counted.push_back(body);
  }
  ASSERT_EQ(counted.size(), 1U);
  EXPECT_THAT(counted[0], HasSubstr(R"("count":11)"));
  EXPECT_EQ(events().size(), 1U);
  // An hour later the API server has dropped the event: a new one is created.
  clock.advance(std::chrono::minutes(51));
  ASSERT_FALSE(prepare());
  EXPECT_EQ(events().size(), 2U);
}

}  // namespace
}  // namespace carve::plugins
