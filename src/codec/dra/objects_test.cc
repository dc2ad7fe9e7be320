#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/dra/claim.h"
#include "codec/dra/resource_slice.h"

namespace carve::codec {
namespace {

using testing::HasSubstr;

TEST(Claim, ReadsThePartsThatADriverNeeds) {
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
  EXPECT_EQ(claim->namespace_name + "/" + claim->name + "/" + claim->uid, "ml/c/u-1");
  const auto& result = claim->results[0];
  EXPECT_EQ(result.request + " " + result.driver + " " + result.pool + " " + result.device,
            "g gpu.elasticgpu.io n1 gpu-1");
  EXPECT_EQ(result.consumed.at("cores"), "30");
  EXPECT_FALSE(claim->configs[1].from_class);
  EXPECT_EQ(claim->configs[0].driver, "d");
  EXPECT_EQ(claim->users.at(0).resource + "/" + claim->users.at(0).name, "pods/p");
  EXPECT_EQ(claim->users.at(0).uid, "u-p");
  EXPECT_EQ(claim->ready, std::vector<std::string>{"n1/gpu-1/s-1"});
}

TEST(Claim, ReadsTheClassesOfItsRequestsAndOfTheirAlternatives) {
  const auto claim = parse_claim(R"({"metadata":{"name":"c","uid":"u"},"spec":{"devices":{"requests":[
    {"exactly":{"deviceClassName":"a"}},{"firstAvailable":[{"deviceClassName":"b"},{"deviceClassName":"c"}]},{}]}}})");
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->classes, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(Claim, ReadsWhatEachRequestAsksFor) {
  const auto claim = parse_claim(R"({"metadata":{"name":"c","uid":"u"},"spec":{"devices":{"requests":[
    {"name":"g","exactly":{"deviceClassName":"a","count":2,"capacity":{"requests":{"memory":"4Gi","cores":30}}}},
    {"name":"h","firstAvailable":[{"name":"big","deviceClassName":"b","allocationMode":"All"}]}]}}})");
  ASSERT_TRUE(claim);
  ASSERT_EQ(claim->asks.size(), 2U);
  EXPECT_EQ(claim->asks[0].request + " " + claim->asks[0].device_class, "g a");
  EXPECT_EQ(claim->asks[0].count, 2);
  EXPECT_EQ(claim->asks[0].capacity, (std::map<std::string, std::string>{{"cores", "30"}, {"memory", "4Gi"}}));
  EXPECT_EQ(claim->asks[1].request + " " + claim->asks[1].device_class, "h/big b");
  EXPECT_EQ(claim->asks[1].count, 0);
}

TEST(Claim, ReadsWhyADeviceIsNotReady) {
  const auto claim = parse_claim(R"({"metadata":{"name":"c","uid":"u"},"status":{"devices":[{"pool":"p","device":"a",
    "shareID":"s","conditions":[{"type":"Ready","status":"False","message":"the card is full"}]}]}})");
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->refused, (std::map<std::string, std::string>{{"p/a/s", "the card is full"}}));
}

TEST(Claim, QuantitiesMayBeNumbersAndOnlyReadyDevicesAreReady) {
  const auto claim = parse_claim(R"({"metadata":{"name":"c","uid":"u"},"status":{"allocation":{"devices":{"results":[
    {"consumedCapacity":{"cores":30,"odd":true}}]}},"devices":[
    {"pool":"p","device":"a","conditions":[{"type":"Ready","status":"False"},{"type":"Other","status":"True"}]},
    {"pool":"p","device":"b","shareID":"s","conditions":[{"type":"Other","status":"False"},{"type":"Ready",
    "status":"True"}]}]}})");
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->results.at(0).consumed, (std::map<std::string, std::string>{{"cores", "30"}, {"odd", ""}}));
  EXPECT_EQ(claim->ready, std::vector<std::string>{"p/b/s"});
}

TEST(Claim, WithoutAnAllocationItIsNotAllocated) {
  EXPECT_FALSE(parse_claim(R"({"metadata":{"name":"c","uid":"u"},"status":{}})")->allocated);
  EXPECT_FALSE(parse_claim(R"({"metadata":{"name":"c"}})"));
  EXPECT_FALSE(parse_claim("[]"));
  EXPECT_FALSE(parse_claim("{"));
}

TEST(Claim, TheStatusHasTheSameUid) {
  Claim claim;
  claim.namespace_name = "ml";
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

TEST(Claim, WritesTheStatusOfASharedDeviceThatIsNotReady) {
  Claim claim;
  claim.name = "c";
  const auto body = claim_status_body(
      claim, {{"d", "n1", "gpu-1", "s-1", false, "R", "m", "no object"}, {"d", "n1", "g", "", true, "R", "", "[1]"}},
      "t");
  EXPECT_THAT(body, HasSubstr(R"("device":"gpu-1","shareID":"s-1","conditions":[{"type":"Ready","status":"False")"));
  EXPECT_THAT(body, testing::Not(HasSubstr("\"data\""))) << "data that is not an object is left out";
}

TEST(ResourceSlice, Golden) {
  PublishedSlice slice{"n1-d-0", "", "d", "n1", "pool", 3, 2, {}};
  PublishedDevice device;
  device.name = "gpu-1";
  device.attributes = {{"a", std::string("t")}, {"b", std::int64_t{7}}, {"c", false}, {"d", AttributeVersion{"1.2.3"}}};
  device.capacity = {{"memory", {"80Gi", "40Gi", "1Mi", "2Mi", ""}}, {"slices", {"128", "1", "1", "", "1"}}};
  device.taints = {{"k", "v", "NoSchedule", ""}};
  slice.devices = {device};
  EXPECT_EQ(encode_slice(slice, ""),
            R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"n1-d-0"},)"
            R"("spec":{"driver":"d",)"
            R"("nodeName":"n1","pool":{"name":"pool","generation":3,"resourceSliceCount":2},)"
            R"("devices":[{"name":"gpu-1",)"
            R"("allowMultipleAllocations":true,"attributes":{"a":{"string":"t"},"b":{"int":7},"c":{"bool":false},)"
            R"("d":{"version":"1.2.3"}},"capacity":{"memory":{"value":"80Gi","requestPolicy":{"default":"40Gi",)"
            R"("validRange":{"min":"1Mi","step":"2Mi"}}},"slices":{"value":"128","requestPolicy":{"default":"1",)"
            R"("validRange":{"min":"1","max":"1"}}}},"taints":[{"key":"k","value":"v",)"
            R"("effect":"NoSchedule"}]}]}})");
  const auto again = parse_slice(encode_slice(slice, ""));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->name + " " + again->driver + " " + again->node + " " + again->pool, "n1-d-0 d n1 pool");
  EXPECT_EQ(again->count, 2);
  EXPECT_EQ(again->devices, slice.devices);
  EXPECT_FALSE(parse_slice("{}"));
  EXPECT_FALSE(parse_slice("{"));
}

TEST(ResourceSlice, ReadsBackWhatItWrote) {
  PublishedSlice slice{"n1-d-0", "7", "d", "n1", "n1", 3, 1, {}};
  PublishedDevice device;
  device.name = "gpu-1";
  device.attributes = {{"uuid", std::string("GPU-1")},
                       {"numaNode", std::int64_t{0}},
                       {"x", true},
                       {"driverVersion", AttributeVersion{"580.65.6"}}};
  device.capacity = {{"memory", {"80Gi", "80Gi", "1Mi", "1Mi", ""}}};
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

}  // namespace
}  // namespace carve::codec
