#include "app/dashboard/token_viewers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

namespace carve::dashboard {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// An API server that answers reviews alone. A token is its user's name.
class Reviewer final : public KubeApi {
 public:
  Result<std::string> get(const std::string&, const Query&) override { return fail(Code::kInternal, "get"); }
  Result<std::vector<std::string>> list(const std::string&, const Query&) override {
    return fail(Code::kInternal, "list");
  }
  Result<std::string> create(const std::string& path, const std::string& body) override {
    ++calls;
    if (away) return fail(Code::kUnavailable, "the server is away");
    auto value = json::parse(body);
    auto& object = value.as_object();
    if (path == codec::kTokenReviews) {
      const std::string user(object.at("spec").at("token").as_string());
      object["status"] =
          json::object{{"authenticated", users.count(user) != 0}, {"user", json::object{{"username", user}}}};
      return json::serialize(value);
    }
    EXPECT_EQ(path, codec::kAccessReviews);
    const auto& wanted = object.at("spec").at("resourceAttributes");
    EXPECT_EQ(wanted.at("verb").as_string(), "list");
    const auto right =
        std::string(object.at("spec").at("user").as_string()) + " " + std::string(wanted.at("group").as_string()) +
        "/" + std::string(wanted.at("resource").as_string()) + " " + std::string(wanted.at("namespace").as_string());
    object["status"] = json::object{{"allowed", rights.count(right) != 0}};
    return json::serialize(value);
  }
  Result<std::string> replace(const std::string&, const std::string&) override { return fail(Code::kInternal, ""); }
  Result<std::string> patch(const std::string&, KubePatch, const std::string&, const Query&) override {
    return fail(Code::kInternal, "");
  }
  Result<void> remove(const std::string&, const std::string&) override { return fail(Code::kInternal, ""); }
  void watch(const std::string&, const Query&, const KubeSink&, const std::stop_token&) override {}

  std::set<std::string> users = {"admin", "red", "cards", "pods", "nobody"};
  std::set<std::string> rights = {"admin elasticgpu.io/gpus ", "admin /pods ", "red /pods red",
                                  "cards elasticgpu.io/gpus ", "pods /pods "};
  bool away = false;
  int calls = 0;
};

class TokenViewersTest : public ::testing::Test {
 protected:
  Result<Viewer> admit(const std::string& token) { return viewers_.admit(token, {"blue", "red"}); }
  Reviewer api_;
  ManualClock clock_;
  TokenViewers viewers_{api_, clock_};
};

TEST_F(TokenViewersTest, ShowsWhatTheUserMayList) {
  EXPECT_TRUE(admit("admin")->everything);
  const auto red = admit("red");
  EXPECT_FALSE(red->everything);
  EXPECT_FALSE(red->cards);
  EXPECT_THAT(red->namespaces, ElementsAre("red"));
  const auto cards = admit("cards");
  EXPECT_TRUE(cards->cards);
  EXPECT_FALSE(cards->everything);
  EXPECT_THAT(cards->namespaces, IsEmpty());
  const auto pods = admit("pods");
  EXPECT_FALSE(pods->cards || pods->everything);
  EXPECT_THAT(pods->namespaces, ElementsAre("blue", "red"));
  const auto nobody = admit("nobody");
  EXPECT_FALSE(nobody->cards || nobody->everything);
  EXPECT_THAT(nobody->namespaces, IsEmpty());
}

TEST_F(TokenViewersTest, RefusesTokensThatTheServerDoesNotKnow) {
  EXPECT_EQ(admit("").error().code, Code::kUnauthenticated);
  EXPECT_EQ(admit("guess").error().code, Code::kUnauthenticated);
  EXPECT_EQ(admit(std::string(20'000, 'x')).error().code, Code::kUnauthenticated);
  EXPECT_EQ(api_.calls, 1);  // the empty and the long one are not sent
}

TEST_F(TokenViewersTest, AnswersAreKeptForAShortTime) {
  EXPECT_TRUE(admit("red"));
  const int calls = api_.calls;
  EXPECT_TRUE(admit("red"));
  EXPECT_EQ(api_.calls, calls);
  api_.rights.clear();
  clock_.advance(TokenViewers::kKept);
  EXPECT_THAT(admit("red")->namespaces, IsEmpty());
  api_.users.clear();
  clock_.advance(TokenViewers::kKept);
  EXPECT_EQ(admit("red").error().code, Code::kUnauthenticated);
}

TEST_F(TokenViewersTest, ANewNamespaceIsExamined) {
  EXPECT_THAT(viewers_.admit("red", {"blue"})->namespaces, IsEmpty());
  EXPECT_THAT(viewers_.admit("red", {"blue", "red"})->namespaces, ElementsAre("red"));
}

// Guessing tokens costs the API server one call per guess and never opens anything.
TEST_F(TokenViewersTest, AWrongTokenIsKeptToo) {
  EXPECT_FALSE(admit("guess"));
  const int calls = api_.calls;
  EXPECT_FALSE(admit("guess"));
  EXPECT_EQ(api_.calls, calls);
}

TEST_F(TokenViewersTest, WithoutTheServerNoCallerIsAdmittedAndTheNextCallMaySucceed) {
  api_.away = true;
  EXPECT_EQ(admit("admin").error().code, Code::kUnavailable);
  EXPECT_THAT(admit("admin").error().what, HasSubstr("the server is away"));
  api_.away = false;
  EXPECT_TRUE(admit("admin")->everything);
}

TEST_F(TokenViewersTest, TheNumberOfKnownTokensIsBounded) {
  for (std::size_t at = 0; at < 3 * TokenViewers::kMostTokens; ++at) EXPECT_FALSE(admit("guess-" + std::to_string(at)));
  EXPECT_TRUE(admit("admin")->everything);
}

}  // namespace
}  // namespace carve::dashboard
