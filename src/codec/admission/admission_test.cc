#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <boost/json.hpp>

#include "codec/admission/answer.h"
#include "codec/admission/review.h"
#include "codec/base64.h"

namespace carve::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string call(const std::string& object, const std::string& rest = "") {
  return R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"r-1","operation":"CREATE",)"
         R"("resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{"username":"ann"},"object":)" +
         object + rest + "}}";
}

TEST(Review, ReadsTheContentsOfAPod) {
  const auto review =
      parse_review(call(R"({"metadata":{"name":"p","annotations":{"a":"b","n":3}},"spec":{
    "schedulerName":"default-scheduler","nodeName":"n1",
    "initContainers":[{"name":"i","env":[{"name":"A","value":"1"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]}],
    "containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1"}},
                   "env":[{"name":"NVIDIA_VISIBLE_DEVICES","valueFrom":{"fieldRef":{"fieldPath":"x"}}}]},
                  {"name":"d","envFrom":[{"configMapRef":{"name":"m"}}]}],
    "ephemeralContainers":[{"name":"e"}]}})"));
  ASSERT_TRUE(review) << review.error().what;
  EXPECT_EQ(review->uid, "r-1");
  EXPECT_EQ(review->user, "ann");
  EXPECT_EQ(review->node, "n1");
  EXPECT_EQ(review->scheduler, "default-scheduler");
  EXPECT_THAT(review->non_string, ElementsAre("n"));
  EXPECT_TRUE(review->has_annotations);
  ASSERT_EQ(review->containers.size(), 4U);
  const auto& init = review->containers[0];
  EXPECT_EQ(init.path, "/spec/initContainers/0");
  ASSERT_EQ(init.visible.size(), 1U);
  EXPECT_EQ(init.visible[0].index, 1U);
  EXPECT_EQ(init.visible[0].value, "all");
  EXPECT_FALSE(init.asks_others);
  EXPECT_TRUE(review->containers[1].asks_others);
  EXPECT_TRUE(review->containers[1].visible[0].from);
  EXPECT_TRUE(review->containers[1].has_limits);
  EXPECT_FALSE(review->containers[1].has_requests);
  EXPECT_TRUE(review->containers[2].env_from);
  EXPECT_FALSE(review->containers[2].has_env);
  EXPECT_TRUE(review->containers[3].ephemeral);
  EXPECT_EQ(review->pod.containers.size(), 3U);
}

TEST(Review, AnUnanswerableCallIsAnErrorAndAnUnreadableObjectIsReported) {
  EXPECT_FALSE(parse_review("{"));
  EXPECT_FALSE(parse_review("{}"));
  EXPECT_THAT(parse_review(R"({"apiVersion":"admission.k8s.io/v1beta1"})").error().what,
              HasSubstr("v1beta1"));
  EXPECT_THAT(parse_review(R"({"apiVersion":"admission.k8s.io/v1","request":{}})").error().what,
              HasSubstr("request.uid"));
  const auto nameless = parse_review(call(R"({"spec":{"containers":[{}]}})"));
  ASSERT_TRUE(nameless);
  EXPECT_THAT(nameless->unreadable.what, HasSubstr("without a name"));
  const auto empty = parse_review(call("null"));
  ASSERT_TRUE(empty);
  EXPECT_THAT(empty->unreadable.what, HasSubstr("request.object is missing"));
}

TEST(Review, ReadsTheOperationAndTheResource) {
  const auto review = parse_review(
      R"({"apiVersion":"admission.k8s.io/v1","request":{"uid":"r","operation":"CREATE","resource":{"resource":"pods"},)"
      R"("subResource":"ephemeralcontainers","userInfo":{"username":"ann"},"object":{"spec":{}}}})");
  ASSERT_TRUE(review) << review.error().what;
  EXPECT_EQ(review->operation + " " + review->resource + "/" + review->subresource + " " + review->user,
            "CREATE pods/ephemeralcontainers ann");
}

TEST(Review, AMissingObjectIsAFaultOnlyForCreateAndUpdate) {
  const auto missed = [](const std::string& operation, const std::string& resource) {
    const auto review = parse_review(R"({"apiVersion":"admission.k8s.io/v1","request":{"uid":"r","operation":")" +
                                     operation + R"(","resource":{"resource":")" + resource + R"("},"object":null}})");
    return review && !review->unreadable.what.empty();
  };
  EXPECT_TRUE(missed("CREATE", "pods"));
  EXPECT_TRUE(missed("UPDATE", "pods"));
  EXPECT_FALSE(missed("DELETE", "pods"));
  EXPECT_FALSE(missed("CONNECT", "pods"));
  EXPECT_FALSE(missed("CREATE", "secrets"));
}

TEST(Answer, CarriesThePatchInBase64) {
  ReviewAnswer answer;
  answer.uid = "r-1";
  EXPECT_EQ(to_json(answer), R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",)"
                             R"("response":{"uid":"r-1","allowed":true}})");
  answer.patch = {{"add", "/a/" + pointer_word("x.io/y~z"), json_text("4\"")},
                  {"remove", "/b", ""}};
  const auto sent = boost::json::parse(to_json(answer));
  const auto& response = sent.at("response");
  EXPECT_EQ(response.at("patchType").as_string(), "JSONPatch");
  const auto patch = decode_base64(std::string(response.at("patch").as_string()));
  ASSERT_TRUE(patch);
  EXPECT_EQ(*patch,
            R"([{"op":"add","path":"/a/x.io~1y~0z","value":"4\""},{"op":"remove","path":"/b"}])");
}

TEST(Answer, RefusesWithATextAndWithoutAPatch) {
  ReviewAnswer answer{"r-1", "nonsense", {std::string(300, 'w')}, {{"remove", "/b", ""}}};
  const std::string text = to_json(answer);
  EXPECT_THAT(
      text,
      HasSubstr(
          R"("allowed":false,"status":{"code":422,"reason":"Invalid","message":"nonsense"})"));
  EXPECT_THAT(text, Not(HasSubstr("patch")));
  EXPECT_THAT(text, HasSubstr(std::string(253, 'w') + "...\""));
}

std::vector<std::string> warnings_of(std::vector<std::string> warnings) {
  const auto sent = boost::json::parse(to_json({"r-1", "", std::move(warnings), {}}));
  std::vector<std::string> shown;
  if (const auto* all = sent.at("response").as_object().if_contains("warnings")) {
    for (const auto& one : all->as_array()) shown.emplace_back(one.as_string());
  }
  return shown;
}

TEST(Answer, AWarningIsTruncatedLikeInTheServerButNeverWithinACharacter) {
  EXPECT_THAT(warnings_of({std::string(256, 'w')}), ElementsAre(std::string(256, 'w')));
  EXPECT_THAT(warnings_of({std::string(257, 'w')}), ElementsAre(std::string(253, 'w') + "..."));
  const std::string character = "\xe2\x82\xac";  // three bytes
  for (std::size_t before = 250; before <= 253; ++before) {
    const std::size_t whole = before + 3 <= 253 ? before + 3 : before;
    const std::string text = std::string(before, 'w') + character;
    EXPECT_THAT(warnings_of({text + character}),
                ElementsAre(text.size() + 3 <= 256 ? text + character : text.substr(0, whole) + "..."))
        << before;
  }
}

TEST(Answer, WarningsEndAtTheServersTotalLimit) {
  EXPECT_EQ(warnings_of(std::vector<std::string>(16, std::string(256, 'w'))).size(), 16U);
  EXPECT_EQ(warnings_of(std::vector<std::string>(17, std::string(256, 'w'))).size(), 16U);
  EXPECT_TRUE(warnings_of({}).empty());
}

TEST(Answer, Base64OfEveryLength) {
  for (std::size_t length = 0; length < 9; ++length) {
    ReviewAnswer answer;
    answer.patch = {{"remove", "/" + std::string(length, 'x'), ""}};
    const auto sent = boost::json::parse(to_json(answer));
    const auto patch = decode_base64(std::string(sent.at("response").at("patch").as_string()));
    ASSERT_TRUE(patch);
    EXPECT_EQ(*patch, R"([{"op":"remove","path":"/)" + std::string(length, 'x') + R"("}])");
  }
}

TEST(Review, AnotherVersionIsQuotedUpToALimit) {
  const std::string what = parse_review(R"({"apiVersion":")" + std::string(100, 'z') + "\"}").error().what;
  EXPECT_EQ(std::count(what.begin(), what.end(), 'z'), 64);
}

TEST(Review, DetectsRequestsForCardsOfOtherPlugins) {
  const auto asks_others = [](const std::string& resources) {
    const auto review = parse_review(
        call(R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":)" + resources + "}]}}"));
    return review && review->containers.size() == 1 && review->containers[0].asks_others;
  };
  for (const char* name : {"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"}) {
    EXPECT_TRUE(asks_others(R"({"limits":{")" + std::string(name) + R"(":"1"}})")) << name;
    EXPECT_TRUE(asks_others(R"({"limits":{"cpu":"1",")" + std::string(name) + R"(":"2"}})")) << name;
    EXPECT_FALSE(asks_others(R"({"limits":{")" + std::string(name) + R"(":"0"}})")) << name;
    EXPECT_FALSE(asks_others(R"({"requests":{")" + std::string(name) + R"(":"1"}})")) << name;
  }
  for (const char* name : {"nvidia.com/hostdev", "nvidia.com/mig", "nvidia.com/gp", "x.nvidia.com/gpu"})
    EXPECT_FALSE(asks_others(R"({"limits":{")" + std::string(name) + R"(":"1"}})")) << name;
}

TEST(Review, ReadsWhichMapsAContainerHas) {
  const auto one = [](const std::string& rest) {
    const auto review =
        parse_review(call(R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"c")" + rest + "}]}}"));
    EXPECT_TRUE(review && review->containers.size() == 1);
    const auto& container = review->containers.at(0);
    return std::vector<bool>{container.has_resources, container.has_limits, container.has_requests, container.has_env,
                             container.env_from, container.ephemeral};
  };
  using Has = std::vector<bool>;
  EXPECT_EQ(one(""), (Has{false, false, false, false, false, false}));
  EXPECT_EQ(one(R"(,"resources":{})"), (Has{true, false, false, false, false, false}));
  EXPECT_EQ(one(R"(,"resources":{"limits":{}})"), (Has{true, true, false, false, false, false}));
  EXPECT_EQ(one(R"(,"resources":{"requests":{}})"), (Has{true, false, true, false, false, false}));
  EXPECT_EQ(one(R"(,"env":[])"), (Has{false, false, false, true, false, false}));
  EXPECT_EQ(one(R"(,"env":{})"), (Has{false, false, false, false, false, false}));
  EXPECT_EQ(one(R"(,"envFrom":[{}])"), (Has{false, false, false, false, true, false}));
  EXPECT_EQ(one(R"(,"envFrom":[])"), (Has{false, false, false, false, false, false}));
}

}  // namespace
}  // namespace carve::codec
