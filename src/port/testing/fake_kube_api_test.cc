#include "port/testing/fake_kube_api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace carve::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kPods = "/api/v1/namespaces/a/pods";
constexpr auto kPod = "/api/v1/namespaces/a/pods/one";

TEST(FakeKubeApi, SetsIdentityAndRefusesWhatTheRealServerRefuses) {
  FakeKubeApi api;
  const auto made = api.create(kPods, R"({"metadata":{"name":"one"},"spec":{}})");
  ASSERT_TRUE(made) << made.error().what;
  const auto object = json::parse(*made);
  EXPECT_EQ(object["metadata"]["namespace"], "a");
  EXPECT_NE(object["metadata"]["uid"], "");
  EXPECT_EQ(api.create(kPods, *made).error().code, Code::kAlreadyExists);
  EXPECT_EQ(api.get("/api/v1/namespaces/b/pods/one").error().code, Code::kNotFound);
  ASSERT_TRUE(api.replace(kPod, *made));
  EXPECT_EQ(api.replace(kPod, *made).error().code, Code::kAborted) << "the version is old now";
  EXPECT_EQ(api.patch(kPod, KubePatch::kMerge, R"({"metadata":{"uid":"other"}})").error().code, Code::kAborted);
  EXPECT_EQ(api.remove(kPod, R"({"preconditions":{"uid":"other"}})").error().code, Code::kAborted);
  EXPECT_TRUE(api.remove(kPod));
  EXPECT_EQ(api.remove(kPod).error().code, Code::kNotFound);
}

TEST(FakeKubeApi, AppliesPatchesAndSubresources) {
  FakeKubeApi api;
  api.put(kPod, R"({"metadata":{"labels":{"x":"1"}},"spec":{},"status":{"phase":"Pending"}})");
  ASSERT_TRUE(api.patch(kPod, KubePatch::kMerge,
                        R"({"metadata":{"labels":{"x":null,"y":"2"}},"status":{"phase":"?"}})"));
  auto object = json::parse(*api.object(kPod));
  EXPECT_EQ(object["metadata"]["labels"], json({{"y", "2"}}));
  EXPECT_EQ(object["status"]["phase"], "Pending") << "a write of the object does not change its status";
  ASSERT_TRUE(api.patch(kPod + std::string("/status"), KubePatch::kMerge, R"({"status":{"phase":"Running"}})"));
  EXPECT_EQ(json::parse(*api.object(kPod))["status"]["phase"], "Running");
  EXPECT_EQ(api.patch(kPod, KubePatch::kJson, R"([{"op":"test","path":"/metadata/labels/y","value":"3"}])")
                .error()
                .code,
            Code::kInvalidArgument);
  const auto binding = kPod + std::string("/binding");
  EXPECT_FALSE(api.create(binding, R"({"metadata":{"uid":"other"},"target":{"name":"n1"}})"));
  ASSERT_TRUE(api.create(binding, R"({"metadata":{"annotations":{"k":"v"}},"target":{"kind":"Node","name":"n1"}})"));
  EXPECT_EQ(json::parse(*api.object(kPod))["spec"]["nodeName"], "n1");
  EXPECT_EQ(json::parse(*api.object(kPod))["metadata"]["annotations"]["k"], "v");
  EXPECT_EQ(api.create(binding, R"({"target":{"name":"n2"}})").error().code, Code::kAlreadyExists);
  ASSERT_TRUE(api.patch("/api/v1/nodes/n2", KubePatch::kApply, R"({"metadata":{"labels":{"made":"yes"}}})"));
  EXPECT_EQ(json::parse(*api.object("/api/v1/nodes/n2"))["metadata"]["name"], "n2");
  ASSERT_TRUE(api.create(kPod + std::string("/eviction"), "{}"));
  EXPECT_FALSE(api.object(kPod));
}

TEST(FakeKubeApi, AStrategicMergeKeepsOtherConditions) {
  FakeKubeApi api;
  const std::string node = "/api/v1/nodes/n";
  api.put(node, R"({"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"A","status":"True"}]}})");
  ASSERT_TRUE(api.patch(node + "/status", KubePatch::kStrategic,
                        R"({"status":{"conditions":[{"type":"A","status":"False"},{"type":"B","status":"True"}]}})"));
  ASSERT_TRUE(api.patch(node + "/status", KubePatch::kStrategic,
                        R"({"status":{"conditions":[{"type":"B","$patch":"delete"}]}})"));
  EXPECT_EQ(json::parse(*api.object(node))["status"]["conditions"],
            json::parse(R"([{"type":"Ready","status":"True"},{"type":"A","status":"False"}])"));
}

TEST(FakeKubeApi, SelectsInEveryNamespace) {
  FakeKubeApi api;
  api.put(kPod, R"({"metadata":{"labels":{"app":"x"}},"spec":{"nodeName":"n1"}})");
  api.put("/api/v1/namespaces/b/pods/two", R"({"spec":{"nodeName":"n2"}})");
  EXPECT_EQ(api.list("/api/v1/pods")->size(), 2U);
  EXPECT_EQ(api.list("/api/v1/pods", {{"fieldSelector", "spec.nodeName=n1"}})->size(), 1U);
  EXPECT_EQ(api.list("/api/v1/pods", {{"fieldSelector", "spec.nodeName!=n1"}})->size(), 1U);
  EXPECT_EQ(api.list("/api/v1/pods", {{"labelSelector", "app=x"}})->size(), 1U);
  EXPECT_EQ(api.list(kPods, {{"labelSelector", "app=y"}})->size(), 0U);
}

TEST(FakeKubeApi, InjectsFailures) {
  FakeKubeApi api;
  api.fail_next({"create", "pods", Code::kDeadlineExceeded, true, 1});
  EXPECT_EQ(api.create(kPods, R"({"metadata":{"name":"one"}})").error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(api.object(kPod)) << "the outcome was unknown, but the write was done";
  api.fail_next({"", "", Code::kResourceExhausted, false, 2});
  EXPECT_EQ(api.get(kPod).error().code, Code::kResourceExhausted);
  EXPECT_EQ(api.remove(kPod).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(api.get(kPod));
  api.set_away(true);
  EXPECT_EQ(api.get(kPod).error().code, Code::kUnavailable);
  api.set_away(false);
  api.set_stalled(true);
  std::jthread blocked([&] { EXPECT_TRUE(api.remove(kPod)); });
  EXPECT_TRUE(api.object(kPod));
  api.set_stalled(false);
  blocked.join();
  const auto writes = api.writes();
  ASSERT_EQ(writes.size(), 3U);
  EXPECT_TRUE(writes[0].done);
  EXPECT_FALSE(writes[1].done);
}

TEST(FakeKubeApi, AWatchReplacesThenReportsChanges) {
  FakeKubeApi api;
  api.put(kPod, R"({"spec":{"nodeName":"n1"}})");
  std::vector<std::string> seen;
  KubeSink sink;
  sink.replace = [&](const std::vector<std::string>& all) { seen.push_back(std::to_string(all.size())); };
  sink.change = [&](const KubeChange& change) {
    seen.push_back((change.kind == KubeChange::Kind::kPut ? "+" : "-") +
                   json::parse(change.object)["metadata"]["name"].get<std::string>());
  };
  sink.trouble = [&](const Error&) { seen.emplace_back("trouble"); };
  std::jthread watch([&](const std::stop_token& stop) {
    api.watch("/api/v1/pods", {{"fieldSelector", "spec.nodeName=n1"}}, sink, stop);
  });
  ASSERT_TRUE(api.wait_watches(1, 10s));
  api.put("/api/v1/namespaces/b/pods/two", R"({"spec":{"nodeName":"n1"}})");
  api.put("/api/v1/namespaces/b/pods/other", R"({"spec":{"nodeName":"n2"}})");
  api.put("/api/v1/namespaces/b/pods/two", R"({"spec":{"nodeName":"n2"}})");
  api.erase(kPod);
  ASSERT_TRUE(api.wait_watches(1, 10s));
  api.set_away(true);
  ASSERT_TRUE(api.wait_watches(1, 10s));
  api.set_away(false);
  ASSERT_TRUE(api.wait_watches(1, 10s));
  api.expire_watches();
  ASSERT_TRUE(api.wait_watches(1, 10s));
  watch.request_stop();
  watch.join();
  EXPECT_EQ(seen, (std::vector<std::string>{"1", "+two", "-two", "-one", "trouble", "0", "0"}));
}

}  // namespace
}  // namespace carve::testing
