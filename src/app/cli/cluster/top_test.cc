#include "app/cli/cluster/top.h"

#include "app/cli/cluster/agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "port/testing/fake_kube_api.h"

namespace carve::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPods = "/api/v1/namespaces/carve-system/pods/";

class ClusterTop : public ::testing::Test {
 protected:
  void agent(const std::string& name, const std::string& node) {
    kube_.put(kPods + name,
              R"({"metadata":{"name":")" + name + R"(","namespace":"carve-system","uid":"u-)" + name +
                  R"(","labels":{"app.kubernetes.io/name":"carve","app.kubernetes.io/component":"agent"}},)" +
                  R"("spec":{"nodeName":")" + node + R"(","containers":[]},"status":{}})");
  }
  /// An answer that read() below decodes: the name of a pod with a slice on the node.
  void answer(const std::string& name, const std::string& pod) { kube_.answer(kPods + name + "/proxy/v1/node", pod); }

  static Result<AgentView> read(std::string_view text) {
    if (text == "nonsense") return fail(Code::kInvalidArgument, "message: not JSON");
    AgentView view;
    CardView card;
    card.card.id = CardId("GPU-0");
    card.card.model = "NVIDIA T4";
    card.card.memory = Bytes::gib(16);
    card.used = Bytes::gib(3);
    card.utilization_percent = 31;
    view.cards.push_back(card);
    SliceView slice;
    slice.name = text;
    slice.state = "running";
    slice.cards.push_back({"GPU-0", Bytes::gib(4), Bytes::gib(3), Bytes::gib(3), CoreShare(30), 29.7});
    view.slices.push_back(slice);
    return view;
  }

  testing::FakeKubeApi kube_;
};

TEST_F(ClusterTop, ListsEveryNodeAndWhyOneDoesNotAnswer) {
  agent("agent-b", "n2");
  agent("agent-a", "n1");
  answer("agent-a", "ml/train-0/main");
  testing::FakeKubeApi::Fault away;
  away.path = "agent-b/proxy";
  kube_.fail_next(away);
  const auto nodes = ask_agents(kube_, "carve-system", "", read);
  ASSERT_TRUE(nodes) << nodes.error().what;
  ASSERT_EQ(nodes->size(), 2U);
  EXPECT_FALSE(nodes->at(1).view);
  const auto text = render_cluster_top(*nodes);
  EXPECT_THAT(text, ::testing::ContainsRegex("n1 +GPU-0 +NVIDIA T4 +3 GiB / 16 GiB +31 %"));
  EXPECT_THAT(text, HasSubstr("ml/train-0/main"));
  EXPECT_THAT(text, HasSubstr("30 burst"));
  EXPECT_THAT(text, HasSubstr("29.7 %  running"));
  EXPECT_THAT(text, HasSubstr("n2    ?      pod agent-b does not answer: "));
}

TEST_F(ClusterTop, DuringATakeoverEitherAgentAnswers) {
  agent("agent-new", "n1");
  agent("agent-old", "n1");
  answer("agent-new", "nonsense");
  answer("agent-old", "ml/a/main");
  const auto nodes = ask_agents(kube_, "carve-system", "n1", read);
  ASSERT_TRUE(nodes) << nodes.error().what;
  ASSERT_EQ(nodes->size(), 1U);
  ASSERT_TRUE(nodes->front().view) << nodes->front().error;
  EXPECT_EQ(nodes->front().view->slices.front().name, "ml/a/main");
}

TEST_F(ClusterTop, AsksEachOfManyNodesOnce) {
  for (int i = 100; i < 150; ++i) {
    const auto name = "agent-" + std::to_string(i);
    agent(name, "n" + std::to_string(i));
    answer(name, "ml/p" + std::to_string(i) + "/main");
  }
  const auto nodes = ask_agents(kube_, "carve-system", "", read);
  ASSERT_TRUE(nodes) << nodes.error().what;
  ASSERT_EQ(nodes->size(), 50U);
  for (const auto& node : *nodes) {
    ASSERT_TRUE(node.view) << node.error;
    EXPECT_EQ(node.view->slices.front().name, "ml/p" + node.node.substr(1) + "/main");
  }
}

TEST_F(ClusterTop, WithoutAnAgentTheErrorNamesTheNamespaceFlag) {
  EXPECT_THAT(ask_agents(kube_, "carve-system", "", read).error().what,
              HasSubstr("no agent runs in namespace carve-system; if Carve is in another namespace"));
  agent("agent-a", "n1");
  EXPECT_THAT(ask_agents(kube_, "carve-system", "n9", read).error().what, HasSubstr("no agent runs on node \"n9\""));
}

TEST_F(ClusterTop, AsksTheAgentsInTheNamespaceOfCarve) {
  agent("agent-a", "n1");
  kube_.put("/api/v1/namespaces/gpus/pods/agent-b",
            R"({"metadata":{"name":"agent-b","namespace":"gpus","uid":"u","labels":)"
            R"({"app.kubernetes.io/name":"carve","app.kubernetes.io/component":"agent"}},)"
            R"("spec":{"nodeName":"n2","containers":[]},"status":{}})");
  kube_.answer("/api/v1/namespaces/gpus/pods/agent-b/proxy/v1/node", "ml/b/main");
  const auto nodes = ask_agents(kube_, "gpus", "", read);
  ASSERT_TRUE(nodes) << nodes.error().what;
  ASSERT_EQ(nodes->size(), 1U);
  ASSERT_TRUE(nodes->front().view) << nodes->front().error;
  EXPECT_EQ(nodes->front().view->slices.front().name, "ml/b/main");
}

}  // namespace
}  // namespace carve::cli
