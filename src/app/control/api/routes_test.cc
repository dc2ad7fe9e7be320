#include "app/control/api/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::control {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RoutesTest : public ::testing::Test {
 protected:
  RoutesTest() {
    const auto named = [](std::string name) {
      return [name = std::move(name)](std::string_view body) {
        return "{\"" + name + "\":\"" + std::string(body) + "\",\"Error\":\"\"}";
      };
    };
    answers_.filter = named("filter");
    answers_.filter_readonly = named("look");
    answers_.rank_readonly = named("rank");
    answers_.prioritize = named("prioritize");
    answers_.choose = named("choose");
    answers_.bind = [](std::string_view) { return std::string(R"({"Error":"not the leader"})"); };
    answers_.mutate = [](std::string_view) { return std::string(R"({"response":{"allowed":true}})"); };
    answers_.validate = [](std::string_view) { return std::string(R"({"response":{"allowed":false}})"); };
    answers_.cluster = [] { return std::string("{}"); };
    answers_.metrics = [this] {
      codec::MetricsText text;
      metrics_.write(&text);
      return text.text();
    };
    answers_.gpushare_inspect = [](std::string_view node) { return "node '" + std::string(node) + "'"; };
    answers_.elastic_status = [] { return std::string("cards by node"); };
    answers_.synced = [this] { return synced_; };
    answers_.not_ready = [this] { return synced_ ? std::string() : std::string("no lists yet"); };
  }
  HttpResponse secure(const std::string& method, const std::string& path, const std::string& peer = "") {
    return Routes(secure_routes(answers_), "carve-scheduler", metrics_, clock_).answer({method, path, "", "b", peer});
  }
  HttpResponse open(const std::string& method, const std::string& path, bool gpushare = false) {
    return Routes(plain_routes(answers_, gpushare), "carve-scheduler", metrics_, clock_)
        .answer({method, path, "", "b", ""});
  }
  std::string metrics() { return open("GET", "/metrics").body; }

  bool synced_ = true;
  ManualClock clock_;
  ControlMetrics metrics_;
  Answers answers_;
};

TEST_F(RoutesTest, PermitsTheSchedulersCallsOnlyToTheScheduler) {
  for (const char* path : {"/scheduler/filter", "/scheduler/prioritize", "/scheduler/choose", "/scheduler/bind"}) {
    EXPECT_EQ(secure("POST", path, "carve-scheduler").status, 200) << path;
    for (const char* peer : {"", "carve-control", "carve-scheduler2", "somebody"})
      EXPECT_EQ(secure("POST", path, peer).status, 403) << path << " as '" << peer << "'";
    EXPECT_EQ(secure("GET", path, "carve-scheduler").status, 405) << path;
    EXPECT_EQ(open("POST", path).status, 404) << path << " exists only on the TLS port";
  }
  EXPECT_EQ(secure("POST", "/scheduler/filter", "carve-scheduler").body, R"({"filter":"b","Error":""})");
  EXPECT_EQ(secure("GET", "/v1/cluster").status, 403);
  EXPECT_EQ(secure("GET", "/v1/cluster", "anybody known").status, 200);
}

TEST_F(RoutesTest, ServesWebhooksWithoutCertificateAndWithoutCluster) {
  synced_ = false;
  EXPECT_EQ(secure("POST", "/webhook/mutate").status, 200);
  EXPECT_EQ(secure("POST", "/webhook/validate").status, 200);
  EXPECT_EQ(secure("POST", "/webhook").status, 404);
  EXPECT_EQ(secure("POST", "/webhook/mutate/more").status, 404);
}

TEST_F(RoutesTest, RepliesUnavailableUntilTheClusterIsKnown) {
  synced_ = false;
  const auto reply = secure("POST", "/scheduler/filter", "carve-scheduler");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(open("GET", "/readyz").status, 503);
  EXPECT_EQ(open("GET", "/readyz").body, "no lists yet\n");
  EXPECT_EQ(open("GET", "/healthz").status, 200);
  synced_ = true;
  EXPECT_EQ(open("GET", "/readyz").status, 200);
}

TEST_F(RoutesTest, ReportsSlowRoutesOnlyForPermittedCallers) {
  answers_.preempt = answers_.bind;
  const Routes routes(secure_routes(answers_), "carve-scheduler", metrics_, clock_);
  EXPECT_TRUE(routes.waits({"POST", "/scheduler/bind", "", "", "carve-scheduler"}));
  EXPECT_FALSE(routes.waits({"POST", "/scheduler/bind", "", "", ""}));
  EXPECT_TRUE(routes.waits({"POST", "/scheduler/preempt", "", "", "carve-scheduler"}));
  EXPECT_TRUE(routes.waits({"GET", "/v1/cluster", "", "", "anybody known"}));
  EXPECT_FALSE(routes.waits({"GET", "/v1/cluster", "", "", ""}));
  EXPECT_FALSE(routes.waits({"POST", "/scheduler/filter", "", "", "carve-scheduler"}));
  EXPECT_FALSE(routes.waits({"GET", "/nothing", "", "", ""}));
}

TEST_F(RoutesTest, AFollowerForwardsCallsAboutNodesToTheLeader) {
  bool follows = true;
  answers_.preempt = answers_.choose;
  answers_.forwards = [&] { return follows; };
  answers_.at_leader = [&](std::string_view path, std::string_view call, const Answers::Text& own) {
    return follows ? "leader" + std::string(path) + " \"Error\":\"\"" : own(call);
  };
  const Routes routes(secure_routes(answers_), "carve-scheduler", metrics_, clock_);
  const auto call = [](const std::string& path) {
    return HttpRequest{"POST", path, "", "b", "carve-scheduler"};
  };
  for (const std::string path : {"/scheduler/filter", "/scheduler/prioritize", "/scheduler/choose",
                                 "/scheduler/preempt"}) {
    follows = true;
    EXPECT_THAT(routes.answer(call(path)).body, StartsWith("leader" + path + "-here"));
    EXPECT_TRUE(routes.waits(call(path))) << path << " waits for the leader's answer";
    const auto here = routes.answer(call(path + "-here"));
    EXPECT_THAT(here.body, Not(HasSubstr("leader"))) << path << ": a forwarded call must not be forwarded again";
    EXPECT_EQ(here.status, 200);
    EXPECT_EQ(routes.answer({"POST", path + "-here", "", "b", ""}).status, 403) << path;
    follows = false;
    EXPECT_THAT(routes.answer(call(path)).body, Not(HasSubstr("leader")));
    EXPECT_EQ(routes.waits(call(path)), path == "/scheduler/preempt") << path;
  }
  EXPECT_FALSE(routes.waits(call("/scheduler/choose-here"))) << "the leader's answer is a computation";
}

// A connection stays on one of two threads, and the kubelet kills control if its probe queues behind a long answer.
TEST_F(RoutesTest, NeverQueuesAProbeBehindASlowRoute) {
  const Routes routes(plain_routes(answers_, true), {}, metrics_, clock_);
  for (const char* slow : {"/metrics", "/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/node-1"})
    EXPECT_TRUE(routes.waits({"GET", slow, "", "", ""})) << slow;
  EXPECT_TRUE(routes.waits({"POST", "/gpushare-scheduler/filter", "", "", ""}));
  for (const char* probe : {"/healthz", "/readyz"}) EXPECT_FALSE(routes.waits({"GET", probe, "", "", ""})) << probe;
}

TEST_F(RoutesTest, ServesGpusharesRoutesOnlyIfEnabled) {
  EXPECT_EQ(open("POST", "/gpushare-scheduler/filter").status, 404);
  EXPECT_EQ(open("POST", "/scheduler/predicates").status, 404);
  EXPECT_THAT(open("POST", "/scheduler/predicates", true).body, HasSubstr("look")) << "gpu-admission's path";
  EXPECT_THAT(open("POST", "/gpushare-scheduler/filter", true).body, HasSubstr("look"))
      << "this port has no authenticated caller";
  EXPECT_EQ(open("GET", "/gpushare-scheduler/inspect", true).body, "node ''");
  EXPECT_EQ(open("GET", "/gpushare-scheduler/inspect/node-1", true).body, "node 'node-1'");
  EXPECT_EQ(open("GET", "/gpushare-scheduler/inspections", true).status, 404);
  EXPECT_EQ(open("GET", "/scheduler/status").status, 404);
  EXPECT_EQ(open("GET", "/scheduler/status", true).body, "cards by node") << "Elastic GPU's";
  EXPECT_THAT(open("POST", "/scheduler/filter", true).body, HasSubstr("look"));
  EXPECT_EQ(open("POST", "/scheduler/priorities").status, 404);
  EXPECT_THAT(open("POST", "/scheduler/priorities", true).body, HasSubstr("rank"));
  EXPECT_EQ(open("POST", "/scheduler/bind", true).status, 404);
  EXPECT_EQ(open("POST", "/gpushare-scheduler/bind", true).status, 404) << "bind exists only on the TLS port";
}

TEST_F(RoutesTest, HasNoRouteForAMissingHandler) {
  answers_.bind = nullptr;
  EXPECT_EQ(secure("POST", "/scheduler/bind", "carve-scheduler").status, 404);
  EXPECT_EQ(secure("POST", "/scheduler/preempt", "carve-scheduler").status, 404);
}

TEST_F(RoutesTest, CountsRequestsByVerbAndOutcome) {
  (void)secure("POST", "/scheduler/filter", "carve-scheduler");
  (void)secure("POST", "/scheduler/filter", "carve-scheduler");
  (void)secure("POST", "/scheduler/filter", "nobody");
  (void)secure("POST", "/scheduler/bind", "carve-scheduler");
  (void)secure("POST", "/webhook/mutate");
  (void)secure("POST", "/webhook/validate");
  const auto text = metrics();
  EXPECT_THAT(text, HasSubstr("carve_control_requests_total{verb=\"filter\",outcome=\"ok\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("carve_control_requests_total{verb=\"bind\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("carve_control_requests_total{verb=\"mutate\",outcome=\"ok\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("carve_control_requests_total{verb=\"validate\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("carve_control_requests_total{verb=\"other\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("carve_control_request_duration_seconds_count{verb=\"filter\"} 2\n"));
}

TEST(ControlMetrics, BucketsAreCumulative) {
  Durations durations;
  for (const auto took : {std::chrono::microseconds(400), std::chrono::microseconds(1000),
                          std::chrono::microseconds(3000), std::chrono::microseconds(60'000'000)})
    durations.observe(took);
  codec::MetricsText text;
  text.family("x", codec::MetricsText::Kind::kHistogram, "");
  durations.write("v", &text);
  EXPECT_THAT(text.text(), HasSubstr("x_bucket{verb=\"v\",le=\"0.0005\"} 1\nx_bucket{verb=\"v\",le=\"0.001\"} 2\n"));
  EXPECT_THAT(text.text(), HasSubstr("le=\"0.005\"} 3\n"));
  EXPECT_THAT(text.text(), HasSubstr("le=\"10\"} 3\nx_bucket{verb=\"v\",le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text.text(), HasSubstr("x_sum{verb=\"v\"} 60.0044\nx_count{verb=\"v\"} 4\n"));
}

TEST(ControlMetrics, CardsAreGaugesOfTheSnapshot) {
  NodeState node;
  Card card;
  card.id = CardId("GPU-1");
  card.model = "NVIDIA \"T4\"";
  card.memory = Bytes::gib(16);
  ASSERT_TRUE(node.ledger.put_card(card));
  ASSERT_TRUE(node.ledger.add({Slice{{OwnerKind::kPod, "u"}, "c", card.id, Bytes::gib(4), CoreShare(30)}}));
  codec::MetricsText text;
  write_cards({{"n1", std::make_shared<const NodeState>(node)}}, &text);
  const std::string labels = R"({node="n1",card="GPU-1",model="NVIDIA \"T4\""} )";
  EXPECT_THAT(text.text(), HasSubstr("carve_control_card_memory_bytes" + labels + "17179869184\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_card_memory_granted_bytes" + labels + "4294967296\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_card_compute_guaranteed_ratio" + labels + "0.3\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_card_slices" + labels + "1\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_card_healthy" + labels + "1\n"));
  EXPECT_THAT(text.text(), Not(HasSubstr("\ncarve_card_"))) << "the agents' name: sums would count a card twice";
}

TEST(ControlMetrics, FreeRoomShowsWhatIsLostToFragmentation) {
  ClusterState cluster;
  for (const char* name : {"n1", "n2"}) {
    NodeState node;
    Card card;
    card.id = CardId(std::string("GPU-") + name);
    card.model = "T4";
    card.memory = Bytes::gib(16);
    ASSERT_TRUE(node.ledger.put_card(card));
    ASSERT_TRUE(node.ledger.add({Slice{{OwnerKind::kPod, name}, "c", card.id, Bytes::gib(8), CoreShare(50)}}));
    cluster.put(name, std::make_shared<const NodeState>(node));
  }
  codec::MetricsText text;
  write_free_room(cluster, &text);
  EXPECT_THAT(text.text(), HasSubstr("carve_control_free_memory_bytes{model=\"T4\"} 17179869184\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_largest_free_memory_bytes{model=\"T4\"} 8589934592\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_largest_free_compute_ratio{model=\"T4\"} 0.5\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_empty_cards{model=\"T4\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_fitting_requests{model=\"T4\",size=\"1/1\"} 0\n"));
  EXPECT_THAT(text.text(), HasSubstr("carve_control_fitting_requests{model=\"T4\",size=\"1/2\"} 2\n"));
  EXPECT_THAT(text.text(),
              HasSubstr("carve_control_fitting_requests_unfragmented{model=\"T4\",size=\"1/1\"} 1\n"));
}

}  // namespace
}  // namespace carve::control
