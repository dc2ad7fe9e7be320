#include "codec/kubelet/checkpoint.h"

#include <gtest/gtest.h>

#include "codec/base64.h"

namespace carve::codec {
namespace {

// Written by hand after the kubelet's file (1.36): a pod that reuses the slot of its init container.
constexpr std::string_view kFile = R"({"Data":{"PodDeviceEntries":[
  {"PodUID":"u-1","ContainerName":"init","ResourceName":"elasticgpu.io/slot",
   "DeviceIDs":{"-1":["slot-0003","slot-0001"]},"AllocResp":"KgA="},
  {"PodUID":"u-1","ContainerName":"a","ResourceName":"elasticgpu.io/slot",
   "DeviceIDs":{"0":["slot-0003"],"1":["slot-0009"]},"AllocResp":""},
  {"PodUID":"u-2","ContainerName":"b","ResourceName":"other.io/x","DeviceIDs":["x1"],"AllocResp":"" }],
  "RegisteredDevices":{"elasticgpu.io/slot":["slot-0000"]}},"Checksum":123,"BootID":"b"})";

TEST(Checkpoint, ReadsEntriesWithUidContainerAndAllNumaNodes) {
  const auto got = parse_checkpoint(kFile);
  ASSERT_TRUE(got) << got.error().what;
  ASSERT_EQ(got->size(), 3U);
  EXPECT_EQ((*got)[0], (CheckpointEntry{"u-1",
                                        "init",
                                        "elasticgpu.io/slot",
                                        {"slot-0003", "slot-0001"},
                                        std::string("\x2a\0", 2)}));
  EXPECT_EQ((*got)[1],
            (CheckpointEntry{"u-1", "a", "elasticgpu.io/slot", {"slot-0003", "slot-0009"}, ""}));
  EXPECT_EQ((*got)[2].devices, std::vector<std::string>{"x1"});
}

TEST(Checkpoint, TheAnswerOfAllocateMayHaveAnyBytes) {
  const auto decoded = [](const std::string& text) {
    const auto got = parse_checkpoint(R"({"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c",)"
                                      R"("ResourceName":"r",)"
                                      R"("DeviceIDs":["d"],"AllocResp":")" +
                                      text + R"("}]}})");
    return got && got->size() == 1 ? got->front().answer : "?";
  };
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (const std::string& one : {bytes, bytes.substr(1), bytes.substr(2), std::string()})
    EXPECT_EQ(decoded(encode_base64(one)), one);
  for (const std::string text : {"KgA-", "Kg@=", "K[A=", "K`A=", "K{A=", "K:A=", "K.A="})
    EXPECT_EQ(decoded(text), "") << text;
}

TEST(Checkpoint, UnknownEntriesAreSkippedAndTheRestIsRead) {
  const auto got = parse_checkpoint(
      R"({"Data":{"PodDeviceEntries":[7,{"PodUID":3},{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":
      {"-1":["d",1,null],"x":"y"}},
      {"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":null}]},"New":{}})");
  ASSERT_TRUE(got) << got.error().what;
  ASSERT_EQ(got->size(), 1U);
  EXPECT_EQ(got->front().devices, std::vector<std::string>{"d"});
  EXPECT_TRUE(parse_checkpoint(R"({"Data":{"PodDeviceEntries":null}})")->empty());
}

TEST(Checkpoint, AHalfWrittenFileIsAnError) {
  for (std::size_t cut = 0; cut < kFile.size(); cut += 17) {
    EXPECT_FALSE(parse_checkpoint(kFile.substr(0, cut))) << cut;
  }
  EXPECT_FALSE(parse_checkpoint("{}"));
  EXPECT_FALSE(parse_checkpoint(R"({"Data":{"PodDeviceEntries":{}}})"));
  EXPECT_FALSE(parse_checkpoint(std::string(100, '[')));
}

TEST(Checkpoint, IsReadUpToSixteenLevelsDeep) {
  const auto deep = [](std::size_t depth) {
    return R"({"Data":{"PodDeviceEntries":null},"x":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') +
           "}";
  };
  EXPECT_TRUE(parse_checkpoint(deep(16)));
  EXPECT_FALSE(parse_checkpoint(deep(17)));
  EXPECT_TRUE(parse_registered(deep(16)));
  EXPECT_FALSE(parse_registered(deep(17)));
}

TEST(Checkpoint, ReadsRegisteredResourcesAndTheirDevices) {
  const auto registered = parse_registered(
      R"({"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"a/b":["x","y"],"c/d":null}},"Checksum":1})");
  ASSERT_TRUE(registered);
  EXPECT_EQ(*registered, (std::map<std::string, std::size_t>{{"a/b", 2}, {"c/d", 0}}));
  EXPECT_TRUE(parse_registered("{}")->empty());
  EXPECT_FALSE(parse_registered("{"));
}

}  // namespace
}  // namespace carve::codec
