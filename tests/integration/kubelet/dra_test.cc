#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <future>
#include <set>

#include "app/plugins/device_names.h"
#include "base/fd.h"
#include "codec/dra/resource_slice.h"
#include "tests/integration/kubelet/plugins_fixture.h"

namespace carve::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

struct Dra : PluginsTest {
  Dra() : PluginsTest(4) {}
  void api_has_claim(const std::string& uid, int on, const std::string& memory,
                     const std::string& name = "c") {
    kube.put(
        "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/" + name,
        fmt::format(
            R"({{"metadata":{{"namespace":"ml","name":"{}","uid":"{}"}},"status":{{"allocation":{{"devices":)"
            R"({{"results":[{{"request":"g","driver":"gpu.elasticgpu.io","pool":"n1","device":"{}",)"
            R"("shareID":"s-{}","consumedCapacity":{{"memory":"{}","cores":"30"}}}}]}}}}}}}})",
            name, uid, plugins::device_name(card(on)), uid, memory));
  }
  /// The newest ResourceSlice, or "".
  std::string last_written() {
    const auto writes = kube.writes();
    const auto last = std::find_if(writes.rbegin(), writes.rend(), [](const auto& one) {
      return one.first.find("resourceslices") != std::string::npos;
    });
    return last == writes.rend() ? std::string() : last->second;
  }
  /// How many ResourceSlices were deleted.
  std::size_t removed_slices() {
    const auto writes = kube.writes();
    return static_cast<std::size_t>(std::count_if(writes.begin(), writes.end(), [](const auto& one) {
      return one.first.starts_with("remove /apis/resource.k8s.io/v1/resourceslices/");
    }));
  }
};

TEST_F(Dra, RegistersAsTheKubeletExpects) {
  start_agent();
  const auto drivers = kubelet.find_drivers(1);
  ASSERT_EQ(drivers.size(), 1U);
  EXPECT_EQ(drivers[0].info.type(), "DRAPlugin");
  EXPECT_EQ(drivers[0].info.name(), "gpu.elasticgpu.io");
  EXPECT_THAT(drivers[0].info.supported_versions(),
              ElementsAre("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"));
  EXPECT_TRUE(
      drivers[0].info.endpoint().starts_with(kubelet.folder() + "/plugins/gpu.elasticgpu.io/dra-uid-1"));
  struct stat status = {};
  ASSERT_EQ(::stat(drivers[0].info.endpoint().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(Dra, PreparesAndUnpreparesAcrossARestart) {
  start_agent();
  auto driver = kubelet.find_drivers(1).at(0);
  api_has_claim("u-1", 2, "4Gi");
  const auto first = ScriptedKubelet::prepare(driver, "ml", "c", "u-1");
  ASSERT_EQ(first.error(), "");
  ASSERT_EQ(first.devices_size(), 1);
  EXPECT_EQ(first.devices(0).share_id(), "s-u-1");
  EXPECT_EQ(slices.behind(first.devices(0).cdi_device_ids(0)).at(0).card, card(2));
  stop_agent();
  EXPECT_FALSE(fs::exists(driver.registration_socket));  // the kubelet notices that
  start_agent();
  driver = kubelet.find_drivers(1).at(0);
  const auto again = ScriptedKubelet::prepare(driver, "ml", "c", "u-1");
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  kube.set_away(true);
  slices.put_cards({});
  EXPECT_EQ(ScriptedKubelet::unprepare(driver, "u-1"), "");
  EXPECT_EQ(ScriptedKubelet::unprepare(driver, "u-1"), "");
  EXPECT_TRUE(slices.held().empty());
}

/// Otherwise the claim's pod stays Terminating forever: the kubelet cannot call an unregistered driver.
TEST_F(Dra, TheDriverStaysForUnprepareWhenPluginsLosesDra) {
  start_agent();
  api_has_claim("u-1", 2, "4Gi");
  api_has_claim("u-2", 1, "4Gi", "d");
  auto driver = kubelet.find_drivers(1).at(0);
  ASSERT_EQ(ScriptedKubelet::prepare(driver, "ml", "c", "u-1").error(), "");
  ASSERT_TRUE(eventually([&] { return !last_written().empty(); }));
  kube.put("/apis/resource.k8s.io/v1/resourceslices/n1-gpu.elasticgpu.io-0", last_written());
  stop_agent();
  auto slots = options();
  ASSERT_TRUE(cmd::parse_plugins("slots", &slots));
  for (std::size_t start = 0; start < 2; ++start) {  // the second one is a restart of the agent
    const auto agent = run_agent(slots);
    driver = kubelet.find_drivers(1).at(0);
    EXPECT_EQ(ScriptedKubelet::prepare(driver, "ml", "c", "u-1").error(), "") << "the kubelet repeats it";
    EXPECT_THAT(ScriptedKubelet::prepare(driver, "ml", "d", "u-2").error(),
                HasSubstr("the setting plugins (ConfigMap carve-cluster) does not contain dra"));
    EXPECT_TRUE(eventually([&] { return removed_slices() > start; })) << "nothing new is allocated here";
  }
  const auto agent = run_agent(slots);
  driver = kubelet.find_drivers(1).at(0);
  EXPECT_EQ(ScriptedKubelet::unprepare(driver, "u-1"), "");
  EXPECT_TRUE(slices.held().empty());
  EXPECT_TRUE(in_the_long_run([&] { return !fs::exists(driver.registration_socket); }));
}

TEST_F(Dra, TheOlderInterfaceIsServedToo) {
  start_agent();
  const auto driver = kubelet.find_drivers(1).at(0);
  // The same messages except for share_id: only the method's path differs.
  grpc::ClientContext context;
  const auto channel = driver.channel;
  api_has_claim("u-1", 1, "4Gi");
  dra::NodePrepareResourcesRequest request;
  auto* claim = request.add_claims();
  claim->set_namespace_("ml");
  claim->set_name("c");
  claim->set_uid("u-1");
  dra::NodePrepareResourcesResponse response;
  const grpc::internal::RpcMethod method(
      "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
      grpc::internal::RpcMethod::NORMAL_RPC, channel);
  const auto status =
      grpc::internal::BlockingUnaryCall<dra::NodePrepareResourcesRequest, dra::NodePrepareResourcesResponse,
                                        google::protobuf::MessageLite, google::protobuf::MessageLite>(
          channel.get(), method, &context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.claims().at("u-1").devices_size(), 1);
  EXPECT_FALSE(response.claims().at("u-1").devices(0).has_share_id());
}

TEST_F(Dra, AHundredConcurrentClaimsNeverExceedTheCard) {
  start_agent();
  const auto driver = kubelet.find_drivers(1).at(0);
  std::vector<std::jthread> threads;
  std::atomic<int> granted{0};
  std::atomic<int> refused{0};
  for (int i = 0; i < 100; ++i) api_has_claim(fmt::format("u-{}", i), i % 4, "4Gi", fmt::format("c{}", i));
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * 10; i < t * 10 + 10; ++i) {
        const auto got =
            ScriptedKubelet::prepare(driver, "ml", fmt::format("c{}", i), fmt::format("u-{}", i));
        (got.error().empty() ? granted : refused)++;
        if (!got.error().empty()) {
          EXPECT_THAT(got.error(), HasSubstr("the card is full"));
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(granted, 80);  // 4 cards of 80 GiB, 4 GiB each: 20 per card
  EXPECT_EQ(refused, 20);
}

TEST_F(Dra, EachOfFiveHundredConcurrentClaimsGetsItsOwnSlice) {
  start_agent();
  const auto driver = kubelet.find_drivers(1).at(0);
  constexpr int kClaims = 500;
  const auto uid = [](int i) { return fmt::format("u-{}", i); };
  // Claims on the same card differ in size (125 of them on 80 GiB).
  const auto size_of = [](int i) { return Bytes::mib(256U + static_cast<unsigned>(i)); };
  for (int i = 0; i < kClaims; ++i)
    api_has_claim(uid(i), i % 4, fmt::format("{}Mi", 256 + i), fmt::format("c{}", i));
  std::vector<std::string> devices(kClaims);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 20; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kClaims; i += 20) {
        const auto got = ScriptedKubelet::prepare(driver, "ml", fmt::format("c{}", i), uid(i));
        EXPECT_EQ(got.error(), "");
        if (got.devices_size() == 1) devices[static_cast<std::size_t>(i)] = got.devices(0).cdi_device_ids(0);
      }
    });
  }
  threads.clear();
  for (int i = 0; i < kClaims; ++i) {
    const auto found = slices.behind(devices[static_cast<std::size_t>(i)]);
    ASSERT_EQ(found.size(), 1U) << i;
    EXPECT_EQ(found[0].owner, (Owner{OwnerKind::kClaim, uid(i)}));
    EXPECT_EQ(found[0].card, card(i % 4)) << i;
    EXPECT_EQ(found[0].memory, size_of(i)) << i;
  }
  EXPECT_EQ(std::set<std::string>(devices.begin(), devices.end()).size(), devices.size());
}

TEST_F(Dra, ARefusedRegistrationIsRetriedWithANewSocket) {
  start_agent();
  const auto refused = kubelet.find_drivers(1, false).at(0);
  EXPECT_TRUE(eventually([&] { return !fs::exists(refused.registration_socket); }));
  // Not immediately: a kubelet that keeps refusing must not be kept busy.
  const auto again = kubelet.find_drivers(1).at(0);
  EXPECT_GE(again.made - refused.made, 900'000'000U);
  EXPECT_EQ(again.registration_socket, refused.registration_socket);
}

TEST_F(Dra, WipedSocketsAreRecreated) {
  start_agent();
  const auto driver = kubelet.find_drivers(1).at(0);
  fs::remove(driver.registration_socket);
  fs::remove(driver.info.endpoint());
  EXPECT_EQ(kubelet.find_drivers(1).size(), 1U);
  EXPECT_TRUE(eventually([&] { return fs::exists(driver.info.endpoint()); }));
}

/// A socket file that a killed process left after its bind. It answers while the returned descriptor is open.
Fd socket_file(const std::string& path, bool listens) {
  Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
  EXPECT_TRUE(!listens || ::listen(made.get(), 1) == 0) << path;
  return made;
}

TEST_F(Dra, UnnamedSocketsOfAKilledAgentAreRemoved) {
  const std::string plugins = kubelet.folder() + "/plugins/gpu.elasticgpu.io";
  const std::string registry = kubelet.folder() + "/plugins_registry";
  std::vector<std::string> dead;
  for (const auto& folder : {plugins, registry, kubelet.device_plugins()}) {
    fs::create_directories(folder);
    dead.push_back(folder + "/.carve-0badcafe");
    socket_file(dead.back(), false);
  }
  const auto another = socket_file(registry + "/.carve-0badbeef", true);  // of another agent that is about to name it
  start_agent();
  ASSERT_EQ(kubelet.find_drivers(1).size(), 1U);
  for (const auto& path : dead) EXPECT_TRUE(eventually([&] { return !fs::exists(path); })) << path;
  EXPECT_TRUE(fs::exists(registry + "/.carve-0badbeef"));
}

TEST_F(Dra, TwoAgentsServeWhileOneReplacesTheOther) {
  start_agent();
  auto with = options("uid-2");
  with.slots = false;
  auto second = run_agent(with);
  const auto drivers = kubelet.find_drivers(2);
  ASSERT_EQ(drivers.size(), 2U);
  EXPECT_NE(drivers[0].info.endpoint(), drivers[1].info.endpoint());
  stop_agent();
  const auto left = kubelet.find_drivers(1);
  ASSERT_EQ(left.size(), 1U);
  api_has_claim("u-1", 0, "4Gi");
  EXPECT_EQ(ScriptedKubelet::prepare(left[0], "ml", "c", "u-1").error(), "");
}

TEST_F(Dra, HealthIsStreamedWithEveryChange) {
  start_agent();
  const auto driver = kubelet.find_drivers(1).at(0);
  grpc::ClientContext context;
  auto reader = v1alpha1::DRAResourceHealth::NewStub(driver.channel)->NodeWatchResources(&context, {});
  v1alpha1::NodeWatchResourcesResponse now;
  ASSERT_TRUE(reader->Read(&now));
  EXPECT_EQ(now.devices_size(), 4);
  EXPECT_EQ(now.devices(1).health(), v1alpha1::HEALTHY);
  EXPECT_EQ(now.devices(1).device().pool_name(), "n1");
  slices.set_health(1, {false, "XID 79"});
  bool seen = false;
  while (!seen && reader->Read(&now)) seen = now.devices(1).health() == v1alpha1::UNHEALTHY;
  EXPECT_TRUE(seen);
  EXPECT_EQ(now.devices(1).message(), "XID 79");
  context.TryCancel();
}

TEST_F(Dra, ResourceSlicesAreWrittenOnceTheKubeletKnowsTheDriver) {
  start_agent();
  ASSERT_TRUE(eventually([&] { return !fs::is_empty(kubelet.folder() + "/plugins_registry"); }));
  ASSERT_TRUE(eventually([&] { return logged("the kubelet has not registered the driver yet"); }));
  EXPECT_TRUE(kube.writes().empty());
  kubelet.find_drivers(1);
  EXPECT_TRUE(eventually([&] {
    const auto writes = kube.writes();
    return std::any_of(writes.begin(), writes.end(), [](const auto& write) {
      return write.first == "create /apis/resource.k8s.io/v1/resourceslices" &&
             write.second.find("\"count\"") == std::string::npos;
    });
  }));
}

/// A node on which the scheduler assigns cards to claims and control assigns cards to records.
struct BothPlugins : Dra {
  std::set<std::string> tainted() {
    std::set<std::string> names;
    const auto text = last_written();
    if (text.empty()) return names;
    const auto published = codec::parse_slice(text)->devices;
    for (const auto& device : published) {
      for (const auto& taint : device.taints) {
        if (taint.key == plugins::kSlotsTaint) names.insert(device.name);
      }
    }
    return names;
  }
};

TEST_F(BothPlugins, ACardWithARecordIsOfferedToNoClaimUntilItsPodIsOver) {
  start_all();
  const auto driver = kubelet.find_drivers(1).at(0);
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  EXPECT_TRUE(eventually([&] { return tainted() == std::set{plugins::device_name(card(2))}; }))
      << "before the pod is admitted";
  kubelet.admit(&a);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  EXPECT_EQ(tainted(), std::set{plugins::device_name(card(2))});
  api_deletes(a);
  EXPECT_TRUE(in_the_long_run([&] { return tainted().empty(); }));
}

TEST_F(BothPlugins, SlicesOfPodsEndWhenPluginsLosesSlots) {
  start_all();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  kubelet.admit(&a);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  stop_agent();
  auto claims = options();
  ASSERT_TRUE(cmd::parse_plugins("dra", &claims));
  const auto agent = run_agent(claims);
  const auto driver = kubelet.find_drivers(1).at(0);
  EXPECT_EQ(slices.held().size(), 1U) << "the pod runs";
  api_deletes(a);
  EXPECT_TRUE(in_the_long_run([&] { return slices.held().empty(); }));
}

TEST_F(BothPlugins, SharedCardsAreOfferedRegardlessOfTheirUse) {
  auto with = options();
  ASSERT_TRUE(cmd::parse_plugins("dra,slots,shared", &with));
  kubelet.start();
  const auto agent = run_agent(with);
  kubelet.list_after_start();
  const auto driver = kubelet.find_drivers(1).at(0);
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  kubelet.admit(&a);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  api_has_claim("u-1", 2, "50Gi");
  EXPECT_EQ(ScriptedKubelet::prepare(driver, "ml", "c", "u-1").error(), "");
  // One write contains everything that is true at its time: the one with another card's health comes after all of the
  // above.
  slices.set_health(3, {false, "XID 79"});
  ASSERT_TRUE(eventually([&] { return last_written().find("xid-79") != std::string::npos; }));
  EXPECT_EQ(tainted(), std::set<std::string>());
  cmd::PluginOptions apart;
  ASSERT_TRUE(cmd::parse_plugins("dra,slots", &apart));
  EXPECT_FALSE(apart.shares_cards) << "cards are shared only when the operator configures it";
}

/// The scheduler and control learn of each other late, so the node decides: src/app/plugins/README.md.
TEST_F(Dra, TheSecondOfTwoAssignmentsOfTheSameCapacityWaits) {
  start_all();
  const auto driver = kubelet.find_drivers(1).at(0);
  api_has_claim("u-1", 2, "50Gi");
  const auto first = ScriptedKubelet::prepare(driver, "ml", "c", "u-1");
  ASSERT_EQ(first.error(), "");
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}, Bytes::gib(50)));
  kubelet.admit(&a);
  auto starting = std::async(std::launch::async, [&] { return kubelet.pre_start(a.containers[0]); });
  ASSERT_TRUE(in_the_long_run([&] { return starting.wait_for(0ms) == std::future_status::ready; }));
  EXPECT_THAT(starting.get().error_message(), HasSubstr("the card is full"));
  EXPECT_TRUE(slices.behind(a.containers[0].cdi).empty());
  ASSERT_EQ(ScriptedKubelet::unprepare(driver, "u-1"), "");
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok()) << "the kubelet retries, and there is room";
  EXPECT_EQ(behind(a.containers[0]), card(2));
  // The same in the other order.
  api_has_claim("u-2", 2, "50Gi", "d");
  const auto second = ScriptedKubelet::prepare(driver, "ml", "d", "u-2");
  EXPECT_THAT(second.error(), HasSubstr("the card is full"));
  EXPECT_EQ(second.devices_size(), 0);
  api_deletes(a);
  EXPECT_TRUE(eventually([&] { return ScriptedKubelet::prepare(driver, "ml", "d", "u-2").error().empty(); }));
}

}  // namespace
}  // namespace carve::test
