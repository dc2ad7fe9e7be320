// Checks every message that Carve writes or reads, field by field, against the field numbers and wire types of the
// kubelet's API. The expectations are written by hand from its definition, not generated.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "proto/device_plugin_v1beta1.grpc.pb.h"
#include "proto/dra_health_v1alpha1.grpc.pb.h"
#include "proto/dra_v1.grpc.pb.h"
#include "proto/dra_v1beta1.grpc.pb.h"
#include "proto/plugin_registration_v1.grpc.pb.h"
#include "proto/pod_resources_v1.grpc.pb.h"

namespace {

std::uint64_t varint(const std::string& bytes, std::size_t* at) {
  std::uint64_t value = 0;
  for (int shift = 0; *at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[(*at)++]);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) break;
  }
  return value;
}

/// Field number → content as text ("5" for a varint), in the order of the message; repeated fields are joined.
std::map<std::uint64_t, std::string> fields(const std::string& bytes) {
  std::map<std::uint64_t, std::string> out;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto tag = varint(bytes, &at);
    std::string text;
    if ((tag & 7U) == 2) {
      const auto size = varint(bytes, &at);
      text = bytes.substr(at, size);
      at += size;
    } else {
      EXPECT_EQ(tag & 7U, 0U) << "the kubelet's API uses only varints and length-delimited fields";
      text = std::to_string(varint(bytes, &at));
    }
    auto& slot = out[tag >> 3U];
    slot += slot.empty() ? text : "," + text;
  }
  return out;
}

using Fields = std::map<std::uint64_t, std::string>;
template <class Message>
Fields of(const Message& message) {
  return fields(message.SerializeAsString());
}

TEST(Wire, DevicePluginRegistration) {
  v1beta1::RegisterRequest m;
  m.set_version("v");
  m.set_endpoint("e");
  m.set_resource_name("r");
  m.mutable_options()->set_pre_start_required(true);
  m.mutable_options()->set_get_preferred_allocation_available(true);
  EXPECT_EQ(of(m), (Fields{{1, "v"}, {2, "e"}, {3, "r"}, {4, "\x08\x01\x10\x01"}}));
  EXPECT_STREQ(v1beta1::Registration::service_full_name(), "v1beta1.Registration");
  EXPECT_STREQ(v1beta1::DevicePlugin::service_full_name(), "v1beta1.DevicePlugin");
}

TEST(Wire, DevicePluginLists) {
  v1beta1::Device d;
  d.set_id("i");
  d.set_health("h");
  d.mutable_topology()->add_nodes()->set_id(3);
  EXPECT_EQ(of(d), (Fields{{1, "i"}, {2, "h"}, {3, std::string("\x0a\x02\x08\x03")}}));
  v1beta1::ListAndWatchResponse list;
  *list.add_devices() = d;
  EXPECT_EQ(of(list), (Fields{{1, d.SerializeAsString()}}));
}

TEST(Wire, DevicePluginAllocate) {
  v1beta1::ContainerAllocateRequest request;
  request.add_devices_ids("a");
  request.add_devices_ids("b");
  EXPECT_EQ(of(request), (Fields{{1, "a,b"}}));
  v1beta1::AllocateRequest all;
  *all.add_container_requests() = request;
  EXPECT_EQ(of(all), (Fields{{1, request.SerializeAsString()}}));
  v1beta1::ContainerAllocateResponse response;
  (*response.mutable_envs())["k"] = "v";
  response.add_mounts()->set_container_path("m");
  response.add_devices()->set_container_path("d");
  (*response.mutable_annotations())["x"] = "y";
  response.add_cdi_devices()->set_name("c");
  EXPECT_EQ(of(response), (Fields{{1, "\x0a\x01k\x12\x01v"},
                                  {2, "\x0a\x01m"},
                                  {3,
                                   "\x0a\x01"
                                   "d"},
                                  {4, "\x0a\x01x\x12\x01y"},
                                  {5,
                                   "\x0a\x01"
                                   "c"}}));
  v1beta1::Mount mount;
  mount.set_container_path("c");
  mount.set_host_path("h");
  mount.set_read_only(true);
  EXPECT_EQ(of(mount), (Fields{{1, "c"}, {2, "h"}, {3, "1"}}));
  v1beta1::DeviceSpec spec;
  spec.set_container_path("c");
  spec.set_host_path("h");
  spec.set_permissions("rw");
  EXPECT_EQ(of(spec), (Fields{{1, "c"}, {2, "h"}, {3, "rw"}}));
  v1beta1::PreStartContainerRequest start;
  start.add_devices_ids("s");
  EXPECT_EQ(of(start), (Fields{{1, "s"}}));
}

TEST(Wire, PodResources) {
  v1::ContainerDevices devices;
  devices.set_resource_name("r");
  devices.add_device_ids("d");
  EXPECT_EQ(of(devices), (Fields{{1, "r"}, {2, "d"}}));
  v1::ContainerResources container;
  container.set_name("c");
  *container.add_devices() = devices;
  container.add_dynamic_resources()->set_claim_name("n");
  EXPECT_EQ(of(container), (Fields{{1, "c"}, {2, devices.SerializeAsString()}, {5, "\x12\x01n"}}));
  v1::PodResources pod;
  pod.set_name("n");
  pod.set_namespace_("s");
  *pod.add_containers() = container;
  EXPECT_EQ(of(pod), (Fields{{1, "n"}, {2, "s"}, {3, container.SerializeAsString()}}));
  v1::ClaimResource claim;
  claim.add_cdi_devices()->set_name("c");
  claim.set_driver_name("d");
  claim.set_pool_name("p");
  claim.set_device_name("v");
  claim.set_share_id("s");
  EXPECT_EQ(of(claim), (Fields{{1,
                                "\x0a\x01"
                                "c"},
                               {2, "d"},
                               {3, "p"},
                               {4, "v"},
                               {5, "s"}}));
  EXPECT_STREQ(v1::PodResourcesLister::service_full_name(), "v1.PodResourcesLister");
}

TEST(Wire, PluginRegistration) {
  pluginregistration::PluginInfo info;
  info.set_type("t");
  info.set_name("n");
  info.set_endpoint("e");
  info.add_supported_versions("v");
  EXPECT_EQ(of(info), (Fields{{1, "t"}, {2, "n"}, {3, "e"}, {4, "v"}}));
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(true);
  status.set_error("e");
  EXPECT_EQ(of(status), (Fields{{1, "1"}, {2, "e"}}));
  EXPECT_STREQ(pluginregistration::Registration::service_full_name(), "pluginregistration.Registration");
}

TEST(Wire, Dra) {
  namespace dra = k8s::io::kubelet::pkg::apis::dra;
  dra::v1::Claim claim;
  claim.set_namespace_("s");
  claim.set_uid("u");
  claim.set_name("n");
  EXPECT_EQ(of(claim), (Fields{{1, "s"}, {2, "u"}, {3, "n"}}));
  dra::v1::Device device;
  device.add_request_names("r");
  device.set_pool_name("p");
  device.set_device_name("d");
  device.add_cdi_device_ids("c");
  device.set_share_id("s");
  EXPECT_EQ(of(device), (Fields{{1, "r"}, {2, "p"}, {3, "d"}, {4, "c"}, {5, "s"}}));
  dra::v1::NodePrepareResourceResponse one;
  *one.add_devices() = device;
  one.set_error("e");
  EXPECT_EQ(of(one), (Fields{{1, device.SerializeAsString()}, {2, "e"}}));
  dra::v1::NodeUnprepareResourcesResponse ended;
  (*ended.mutable_claims())["u"].set_error("e");
  EXPECT_EQ(of(ended), (Fields{{1, std::string("\x0a\x01u\x12\x03\x0a\x01") + "e"}}));
  dra::v1beta1::Device old;
  old.add_cdi_device_ids("c");
  EXPECT_EQ(of(old), (Fields{{4, "c"}}));
  EXPECT_STREQ(dra::v1::DRAPlugin::service_full_name(), "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin");
  EXPECT_STREQ(dra::v1beta1::DRAPlugin::service_full_name(), "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin");
}

TEST(Wire, DraHealth) {
  v1alpha1::DeviceHealth health;
  health.mutable_device()->set_pool_name("p");
  health.mutable_device()->set_device_name("d");
  health.set_health(v1alpha1::UNHEALTHY);
  health.set_last_updated_time(7);
  health.set_health_check_timeout_seconds(30);
  health.set_message("m");
  EXPECT_EQ(of(health),
            (Fields{{1, std::string("\x0a\x01p\x12\x01") + "d"}, {2, "2"}, {3, "7"}, {4, "30"}, {5, "m"}}));
  EXPECT_STREQ(v1alpha1::DRAResourceHealth::service_full_name(), "v1alpha1.DRAResourceHealth");
}

}  // namespace
