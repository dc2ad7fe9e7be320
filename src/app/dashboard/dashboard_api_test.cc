#include "app/dashboard/dashboard_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>

namespace carve::dashboard {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr WebFile kFiles[] = {{"index.html", "text/html", "<html>"}, {"app.js", "text/javascript", "js"}};

class DashboardApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    board_.scope = "cluster";
    for (int at = 0; at < 5; ++at) {
      codec::BoardCard card;
      card.uuid = "GPU-" + std::to_string(at);
      card.node = at < 3 ? "n1" : "n2";
      card.model = "H200";
      card.healthy = at != 4;
      board_.cards.push_back(card);
    }
    board_.nodes = {{"n1", true, ""}, {"n2", true, ""}};
    for (const char* space : {"blue", "red"}) {
      codec::BoardSlice slice;
      slice.id = space;
      slice.namespace_name = space;
      slice.node = "n1";
      slice.card = "GPU-0";
      slice.agent_id = std::string("agent-") + space;
      board_.slices.push_back(slice);
      board_.waiting.push_back({space, std::string(space) + "-pod", "", ""});
      board_.events.push_back({1, "n1", space, "breach", "s", std::string(space) + " broke it"});
    }
    Sources sources;
    sources.board = [this]() -> Result<codec::Board> {
      if (!trouble_.empty()) return fail(Code::kUnavailable, trouble_);
      return board_;
    };
    sources.node = [](const std::string& node) -> Result<std::string> { return "{\"agent\":\"" + node + "\"}"; };
    sources.explain = [](const std::string& space, const std::string& pod) -> Result<std::string> {
      return "{\"pod\":\"" + space + "/" + pod + "\"}";
    };
    sources.history = [this](const HistoryRequest& ask) -> Result<std::string> {
      asked_ = ask;
      return std::string("{}");
    };
    sources.usage = [](const std::string& since) -> Result<UsageReader::Shared> {
      codec::Usage usage;
      usage.since = std::chrono::hours(since == "24h" ? 24 : 1);
      usage.hours["red"].card_hours_promised = 3;
      usage.hours["grey"].card_hours_promised = 5;  // it has nothing on the board now
      return std::make_shared<const codec::Usage>(usage);
    };
    sources.admit = [this](const std::string& token, const std::set<std::string>& namespaces) -> Result<Viewer> {
      examined_ = namespaces;
      Viewer viewer;
      viewer.everything = viewer.cards = token == "admin";
      if (token == "red") viewer.namespaces = {"red"};
      if (token != "admin" && token != "red" && token != "nobody") return fail(Code::kUnauthenticated, "no such token");
      return viewer;
    };
    api_ = std::make_unique<DashboardApi>(std::move(sources), WebFiles{kFiles, "sha256-x"}, clock_);
  }
  HttpResponse get(const std::string& path, const std::string& token = "admin", const std::string& method = "GET") {
    const auto mark = path.find('?');
    HttpRequest ask;
    ask.method = method;
    ask.path = path.substr(0, mark);
    if (mark != std::string::npos) ask.query = path.substr(mark + 1);
    ask.token = token;
    return api_->answer(ask);
  }
  json::value read(const std::string& path, const std::string& token = "admin") {
    const auto reply = get(path, token);
    EXPECT_EQ(reply.status, 200) << path << ": " << reply.body;
    return json::parse(reply.body);
  }

  ManualClock clock_;
  codec::Board board_;
  std::string trouble_;
  HistoryRequest asked_;
  std::set<std::string> examined_;
  std::unique_ptr<DashboardApi> api_;
};

TEST_F(DashboardApiTest, ListsCardsPageByPage) {
  std::vector<std::string> seen;
  std::string next;
  do {
    const auto page = read("/v1/cards?limit=2&continue=" + next);
    EXPECT_EQ(page.at("total").to_number<int>(), 5);
    for (const auto& item : page.at("items").as_array()) seen.emplace_back(item.at("uuid").as_string());
    next = page.at("continue").as_string();
  } while (!next.empty());
  EXPECT_THAT(seen, ::testing::ElementsAre("GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4"));
  EXPECT_EQ(get("/v1/cards?continue=2").status, 400);
  EXPECT_THAT(get("/v1/cards?continue=2").body, HasSubstr("is not the `continue` of a page"));
}

// Items that are created or deleted between two pages must neither repeat nor hide others.
TEST_F(DashboardApiTest, ANextPageStartsBehindTheLastItemOfThePageBefore) {
  const auto first = read("/v1/cards?limit=2");
  board_.cards.erase(board_.cards.begin(), board_.cards.begin() + 2);  // those of the first page
  auto another = board_.cards.front();
  another.uuid = "GPU-0a";
  another.node = "n0";
  board_.cards.insert(board_.cards.begin(), another);  // before them
  clock_.advance(std::chrono::seconds(10));
  const auto second = read("/v1/cards?limit=10&continue=" + std::string(first.at("continue").as_string()));
  std::vector<std::string> seen;
  for (const auto& item : second.at("items").as_array()) seen.emplace_back(item.at("uuid").as_string());
  EXPECT_THAT(seen, ::testing::ElementsAre("GPU-2", "GPU-3", "GPU-4"));
  EXPECT_EQ(second.at("continue").as_string(), "");
}

// Events of one moment are pages too: Kubernetes' Events have a resolution of one second.
TEST_F(DashboardApiTest, PagesOfEventsOfOneMomentAreComplete) {
  board_.events.clear();
  for (int at = 0; at < 7; ++at)
    board_.events.push_back({1'000, "n1", "", "kind", "pod", "text " + std::to_string(at)});
  std::sort(board_.events.begin(), board_.events.end(), codec::before);
  std::set<std::string> seen;
  std::string next;
  do {
    const auto page = read("/v1/events?limit=3&continue=" + next);
    for (const auto& item : page.at("items").as_array()) seen.emplace(item.at("text").as_string());
    next = page.at("continue").as_string();
  } while (!next.empty());
  EXPECT_EQ(seen.size(), 7U);
}

TEST_F(DashboardApiTest, Filters) {
  EXPECT_EQ(read("/v1/cards?node=n2").at("total").to_number<int>(), 2);
  EXPECT_EQ(read("/v1/cards?healthy=false").at("total").to_number<int>(), 1);
  EXPECT_EQ(read("/v1/cards?uuid=GPU-3").at("total").to_number<int>(), 1);
  EXPECT_EQ(read("/v1/cards?model=T4").at("total").to_number<int>(), 0);
  EXPECT_EQ(read("/v1/slices?namespace=red").at("total").to_number<int>(), 1);
  EXPECT_EQ(read("/v1/waiting?namespace=red").at("total").to_number<int>(), 1);
  EXPECT_EQ(read("/v1/events?kind=other").at("total").to_number<int>(), 0);
}

TEST_F(DashboardApiTest, UsageIsOfADayAndOfTheViewersNamespaces) {
  const auto all = read("/v1/usage");
  EXPECT_EQ(all.at("since_seconds").to_number<int>(), 86'400);
  EXPECT_EQ(all.at("namespaces").as_array().size(), 2U);
  const auto own = read("/v1/usage?since=1h", "red");
  EXPECT_EQ(own.at("since_seconds").to_number<int>(), 3600);
  ASSERT_EQ(own.at("namespaces").as_array().size(), 1U);
  EXPECT_EQ(own.at("namespaces").at(0).at("name").as_string(), "red");
  EXPECT_EQ(examined_.count("grey"), 1U) << "a namespace with a past alone is examined too";
  EXPECT_EQ(read("/v1/usage", "nobody").at("namespaces").as_array().size(), 0U);
  EXPECT_EQ(get("/v1/usage", "").status, 401);
}

TEST_F(DashboardApiTest, RefusesWrongParametersByName) {
  EXPECT_EQ(get("/v1/cards?nod=n1").status, 400);
  EXPECT_THAT(get("/v1/cards?nod=n1").body, HasSubstr("legal are node, model, uuid, healthy, limit, continue"));
  EXPECT_THAT(get("/v1/cards?limit=0").body, HasSubstr("limit: \"0\" is not a number from 1 to 10000"));
  EXPECT_EQ(get("/v1/cards?limit=10001").status, 400);
  EXPECT_EQ(get("/v1/watch?detail=all").status, 400);
  EXPECT_EQ(get("/v1/watch?since=-1").status, 400);
  EXPECT_EQ(get("/v1/history").status, 400);
}

// Without a valid token the answer says nothing, not even whether a path or a node exists, or what is wrong.
TEST_F(DashboardApiTest, RefusesCallersWithoutAToken) {
  for (const char* path : {"/v1/cards", "/v1/summary", "/v1/watch", "/v1/nodes/n1", "/v1/pods/red/x",
                           "/v1/history?node=n1", "/v1/unknown", "/v1/cards?nod=1"}) {
    EXPECT_EQ(get(path, "").status, 401) << path;
    EXPECT_EQ(get(path, "guess").status, 401) << path;
  }
  trouble_ = "secret cause";
  clock_.advance(std::chrono::minutes(1));
  EXPECT_EQ(get("/v1/cards", "").status, 401);
  EXPECT_THAT(get("/v1/cards", "").body, Not(HasSubstr("secret")));
  EXPECT_EQ(get("/v1/cards").status, 503);
}

TEST_F(DashboardApiTest, ANamespacesViewerSeesOnlyItsOwn) {
  for (const char* path :
       {"/v1/summary", "/v1/cards", "/v1/slices", "/v1/nodes", "/v1/waiting", "/v1/events", "/v1/watch"})
    EXPECT_THAT(get(path, "red").body, Not(HasSubstr("blue"))) << path;
  EXPECT_EQ(read("/v1/slices", "red").at("total").to_number<int>(), 1);
  EXPECT_EQ(read("/v1/cards", "red").at("total").to_number<int>(), 1);  // the one with its slice
  EXPECT_EQ(read("/v1/cards", "nobody").at("total").to_number<int>(), 0);
  EXPECT_EQ(get("/v1/nodes/n1", "red").status, 403);
  EXPECT_EQ(get("/v1/pods/blue/x", "red").status, 403);
  EXPECT_EQ(get("/v1/pods/red/x", "red").status, 200);
  EXPECT_EQ(get("/v1/history?node=n1&card=GPU-0", "red").status, 403);
  EXPECT_EQ(get("/v1/history?node=n1&slice=agent-blue", "red").status, 403);
  EXPECT_EQ(get("/v1/history?node=n1&slice=agent-red&since=24h", "red").status, 200);
  EXPECT_EQ(asked_.slice, "agent-red");
  EXPECT_EQ(asked_.since, "24h");
  EXPECT_THAT(examined_, ::testing::ElementsAre("blue", "red"));
}

TEST_F(DashboardApiTest, AnswersAboutOneNodeAndOnePod) {
  EXPECT_THAT(get("/v1/nodes/n1").body, HasSubstr("\"agent\":\"n1\""));
  EXPECT_EQ(get("/v1/nodes/n3").status, 404);
  EXPECT_EQ(get("/v1/nodes/n1%2f..%2fn2").status, 404);
  EXPECT_THAT(get("/v1/pods/a%2db/c.0").body, HasSubstr("\"pod\":\"a-b/c.0\""));
}

// A name becomes a part of a path of the API server.
TEST_F(DashboardApiTest, RefusesWhatIsNoName) {
  for (const char* name : {"..", "%2e%2e", "a%2fb", "a%3fb", "a%23b", "a%25b", "a%20b", "", ".a", "a%5cb"}) {
    EXPECT_EQ(get(std::string("/v1/pods/red/") + name).status, 404) << name;
    EXPECT_EQ(get(std::string("/v1/pods/") + name + "/x").status, 404) << name;
  }
  EXPECT_EQ(get("/v1/pods/red/" + std::string(254, 'a')).status, 404);
}

TEST_F(DashboardApiTest, ALargeBoardIsFollowedByItsNodes) {
  board_.cards.resize(DashboardApi::kMostCardsWatched + 1, board_.cards.back());
  for (std::size_t at = 0; at < board_.cards.size(); ++at) board_.cards[at].uuid = "GPU-" + std::to_string(at);
  EXPECT_EQ(get("/v1/watch").status, 400);
  EXPECT_THAT(get("/v1/watch?detail=cards").body, HasSubstr("more than 5000 cards; legal is nodes"));
  EXPECT_THAT(get("/v1/watch?detail=nodes").body, StartsWith("event: change"));
}

TEST_F(DashboardApiTest, ViewersAtTheSameRevisionGetTheSameText) {
  auto one = get("/v1/watch");
  auto other = get("/v1/watch");
  EXPECT_EQ(one.body, other.body);
  board_.cards[1].granted = Bytes::gib(1);
  clock_.advance(BoardFeed::kFresh);
  const auto text = one.more();
  EXPECT_THAT(*text, HasSubstr("GPU-1"));
  EXPECT_EQ(other.more(), text);
  auto late = get("/v1/watch");
  EXPECT_THAT(late.body, HasSubstr("\"complete\":true"));
  board_.cards[2].granted = Bytes::gib(1);
  clock_.advance(BoardFeed::kFresh);
  EXPECT_EQ(late.more(), one.more());
  auto behind = get("/v1/watch?detail=nodes");
  EXPECT_THAT(behind.body, Not(HasSubstr("GPU-")));
}

TEST_F(DashboardApiTest, ChangesNothing) {
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"}) {
    for (const char* path : {"/v1/cards", "/v1/session", "/dashboard/", "/v1/watch"})
      EXPECT_EQ(get(path, "admin", method).status, 405) << method << " " << path;
  }
}

TEST_F(DashboardApiTest, ServesThePageWithAStrictPolicy) {
  const auto page = get("/dashboard/", "");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, "<html>");
  std::string policy;
  for (const auto& [name, value] : page.fields) {
    if (name == "Content-Security-Policy") policy = value;
  }
  EXPECT_THAT(policy, StartsWith("default-src 'none'; script-src 'self' 'sha256-x'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_EQ(get("/dashboard/app.js", "").body, "js");
  EXPECT_EQ(get("/", "").status, 302);
  EXPECT_EQ(get("/dashboard", "").status, 302);
  for (const char* path : {"/dashboard/other", "/dashboard/../v1/cards", "/dashboard/%2e%2e/x", "/x", "/dashboardx"})
    EXPECT_EQ(get(path, "").status, 404) << path;
}

TEST_F(DashboardApiTest, DescribesItself) {
  const auto described = read("/v1/openapi.json");
  EXPECT_EQ(described.at("openapi").as_string(), "3.1.0");
  const auto& paths = described.at("paths").as_object();
  // Every described path answers, with every described parameter.
  for (const auto& [path, item] : paths) {
    EXPECT_EQ(item.as_object().size(), 1U) << path;  // get alone
    std::string url(path);
    std::string query;
    for (const auto& parameter : item.at("get").at("parameters").as_array()) {
      const std::string name(parameter.at("name").as_string());
      if (parameter.at("in").as_string() == "query") {
        query += (query.empty() ? "?" : "&") + name + "=";
        continue;
      }
      const auto at = url.find("{" + name + "}");
      ASSERT_NE(at, std::string::npos) << path;
      url.replace(at, name.size() + 2, name == "node" ? "n1" : "x");
    }
    EXPECT_EQ(get(url + query).status, url == "/v1/history" ? 400 : 200) << url << query;  // a node is required
  }
  EXPECT_TRUE(paths.contains("/v1/watch"));
}

TEST_F(DashboardApiTest, WatchSendsChangesAndSignsOfLife) {
  auto reply = get("/v1/watch");
  EXPECT_EQ(reply.type, "text/event-stream");
  ASSERT_THAT(reply.body, StartsWith("event: change\ndata: "));
  EXPECT_THAT(reply.body, HasSubstr("\"complete\":true"));
  EXPECT_EQ(reply.more(), "");
  board_.cards[1].granted = Bytes::gib(1);
  clock_.advance(BoardFeed::kFresh);
  const auto change = reply.more();
  ASSERT_TRUE(change);
  EXPECT_THAT(*change, HasSubstr("GPU-1"));
  EXPECT_THAT(*change, Not(HasSubstr("GPU-2")));
  clock_.advance(std::chrono::seconds(5));
  EXPECT_THAT(*reply.more(), StartsWith("event: alive"));
}

TEST_F(DashboardApiTest, WatchTellsOfTroubleOnceAndContinues) {
  auto reply = get("/v1/watch");
  trouble_ = "the agent is away";
  clock_.advance(BoardFeed::kFresh);
  EXPECT_EQ(*reply.more(), "event: trouble\ndata: the agent is away\n\n");
  EXPECT_EQ(*reply.more(), "");
  trouble_.clear();
  board_.cards.pop_back();
  clock_.advance(BoardFeed::kFresh);
  EXPECT_THAT(*reply.more(), HasSubstr("GPU-4"));
}

TEST_F(DashboardApiTest, WatchOfANamespaceIsSilentAboutOthers) {
  auto reply = get("/v1/watch", "red");
  board_.slices[0].memory = Bytes::gib(7);  // blue's
  clock_.advance(BoardFeed::kFresh);
  EXPECT_EQ(*reply.more(), "");
  board_.slices[1].memory = Bytes::gib(9);
  clock_.advance(BoardFeed::kFresh);
  EXPECT_THAT(*reply.more(), HasSubstr("9663676416"));
}

TEST_F(DashboardApiTest, TheNumberOfWatchersIsBounded) {
  std::vector<HttpResponse> open;
  for (int at = 0; at < DashboardApi::kMostWatching; ++at) open.push_back(get("/v1/watch"));
  EXPECT_EQ(get("/v1/watch").status, 503);
  open.pop_back();
  EXPECT_EQ(get("/v1/watch").status, 200);
}

}  // namespace
}  // namespace carve::dashboard
