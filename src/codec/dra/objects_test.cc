#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/dra/claim.h"
#include "codec/dra/event.h"
#include "codec/dra/resource_slice.h"

namespace carve::codec {
namespace {

using testing::HasSubstr;

TEST(Claim, WhatADriverNeedsOfIt) {
  const auto claim = parse_claim(
      R"({"metadata":{"namespace":"ml","name":"c","uid":"u-1","managedFields":[{"x":{"f:a":{}}}]},
    "spec":{"devices":{"requests":[{"name":"g"}]}},
    "status":{"allocation":{"devices":{"results":[
        {"request":"g","driver":"gpu.elasticgpu.io","pool":"n1","device":"gpu-1","shareID":"s-1",
         "consumedCapacity":{"memory":"4Gi","cores":"30"}}],
      "config":[{"source":"FromClass","requests":[],"opaque":{"driver":"d","parameters":{"kind":"K","n":1}}},
                {"source":"FromClaim","requests":["g"],"opaque":{"driver":"d","parameters":{}}}]}},
     "reservedFor":[{"resource":"pods","name":"p","uid":"u-p"}],
     "devices":[{"driver":"d","pool":"n1","device":"gpu-1","shareID":"s-1",
                 "conditions":[{"type":"Ready","status":"True"}]}]}})");
  ASSERT_TRUE(claim) << claim.error().what;
  EXPECT_TRUE(claim->allocated);
  ASSERT_EQ(claim->results.size(), 1U);
  EXPECT_EQ(claim->results[0].consumed.at("memory"), "4Gi");
  EXPECT_EQ(claim->results[0].share, "s-1");
  ASSERT_EQ(claim->configs.size(), 2U);
  EXPECT_TRUE(claim->configs[0].from_class);
  EXPECT_EQ(claim->configs[0].parameters, R"({"kind":"K","n":1})");
  EXPECT_EQ(claim->configs[1].requests, std::vector<std::string>{"g"});
  EXPECT_EQ(claim->users.at(0).uid, "u-p");
  EXPECT_EQ(claim->ready, std::vector<std::string>{"n1/gpu-1/s-1"});
}

TEST(Claim, WithoutAnAllocationItIsNotAllocated) {
  EXPECT_FALSE(parse_claim(R"({"metadata":{"name":"c","uid":"u"},"status":{}})")->allocated);
  EXPECT_FALSE(parse_claim(R"({"metadata":{"name":"c"}})"));
  EXPECT_FALSE(parse_claim("[]"));
  EXPECT_FALSE(parse_claim("{"));
}

TEST(Claim, StatusSpeaksOfTheSameUid) {
  Claim claim;
  claim.space = "ml";
  claim.name = "c";
  claim.uid = "u-1";
  const auto body =
      claim_status_body(claim, {{"d", "n1", "gpu-1", "", true, "Prepared", "4 GiB", R"({"a":1})"}},
                        "2026-01-01T00:00:00Z");
  EXPECT_EQ(
      body,
      R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c","namespace":)"
      R"("ml","uid":"u-1"},)"
      R"("status":{"devices":[{"driver":"d","pool":"n1","device":"gpu-1","conditions":[{"type":)"
      R"("Ready","status":"True",)"
      R"("reason":"Prepared","message":"4 GiB","lastTransitionTime":"2026-01-01T00:00:00Z"}],"data":{"a":1}}]}})");
}

TEST(ResourceSlice, ReadsBackWhatItWrote) {
  PublishedSlice slice{"n1-d-0", "7", "d", "n1", "n1", 3, 1, {}};
  PublishedDevice device;
  device.name = "gpu-1";
  device.attributes = {{"uuid", std::string("GPU-1")},
                       {"numaNode", std::int64_t{0}},
                       {"x", true},
                       {"driverVersion", AttributeVersion{"580.65.6"}}};
  device.capacity = {{"memory", {"80Gi", "80Gi", "1Mi", "1Mi"}}};
  device.taints = {{"d/unhealthy", "xid-79", "NoSchedule", "2026-01-01T00:00:00Z"}};
  slice.devices = {device};
  const auto text = encode_slice(slice, "node-uid");
  EXPECT_THAT(text, HasSubstr(R"("driverVersion":{"version":"580.65.6"})"));
  EXPECT_THAT(text, HasSubstr(R"("allowMultipleAllocations":true)"));
  EXPECT_THAT(text, HasSubstr(R"("uid":"node-uid","controller":true)"));
  const auto again = parse_slice(text);
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ(again->devices, slice.devices);
  EXPECT_EQ(again->generation, 3);
  EXPECT_EQ(again->version, "7");
  EXPECT_EQ(again->devices[0].taints[0].added, "2026-01-01T00:00:00Z");
}

TEST(Event, IsAboutOneObject) {
  const auto text =
      encode_event({"Pod", "ml", "p", "u", "SliceRefused", std::string(2000, 'x')}, "p.1", "n1",
                   "carve-agent", {"2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1});
  EXPECT_THAT(text,
              HasSubstr(R"("involvedObject":{"kind":"Pod","namespace":"ml","name":"p","uid":"u")"));
  EXPECT_LT(text.size(), 1600U);
}

}  // namespace
}  // namespace carve::codec
