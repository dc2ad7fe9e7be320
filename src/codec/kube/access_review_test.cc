#include "codec/kube/access_review.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kReviewed = R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview",
  "status":{"authenticated":true,"user":{"username":"alice","uid":"7","groups":["ml","system:authenticated"],
  "extra":{"scopes":["a","b"]}}}})";

TEST(TokenReview, TellsTheUser) {
  EXPECT_THAT(token_review("s3cret"), HasSubstr("\"spec\":{\"token\":\"s3cret\"}"));
  const auto user = parse_token_review(kReviewed);
  ASSERT_TRUE(user);
  EXPECT_EQ(user->name, "alice");
  EXPECT_THAT(user->groups, ElementsAre("ml", "system:authenticated"));
  EXPECT_THAT(user->extra.at("scopes"), ElementsAre("a", "b"));
}

TEST(TokenReview, AnUnknownTokenIsNoUser) {
  for (const char* text : {R"({"kind":"TokenReview","status":{"authenticated":false,"user":{"username":"alice"}}})",
                           R"({"kind":"TokenReview","status":{"user":{"username":"alice"}}})",
                           R"({"kind":"TokenReview","status":{"authenticated":true,"user":{}}})",
                           R"({"kind":"TokenReview","status":{"authenticated":"true","user":{"username":"alice"}}})",
                           R"({"kind":"TokenReview"})"}) {
    EXPECT_EQ(parse_token_review(text).error().code, Code::kUnauthenticated) << text;
  }
  EXPECT_EQ(parse_token_review("{}").error().code, Code::kInvalidArgument);
  EXPECT_EQ(parse_token_review("no").error().code, Code::kInvalidArgument);
}

TEST(AccessReview, AsksWithTheWholeUser) {
  const auto text = access_review(*parse_token_review(kReviewed), {"list", "", "pods", "team"});
  EXPECT_THAT(
      text,
      HasSubstr(R"("user":"alice","uid":"7","groups":["ml","system:authenticated"],"extra":{"scopes":["a","b"]})"));
  EXPECT_THAT(text,
              HasSubstr(R"("resourceAttributes":{"verb":"list","group":"","resource":"pods","namespace":"team"})"));
}

TEST(AccessReview, OnlyAnExplicitPermissionCounts) {
  const auto read = [](const std::string& status) {
    return *parse_access_review("{\"kind\":\"SubjectAccessReview\",\"status\":" + status + "}");
  };
  EXPECT_TRUE(read(R"({"allowed":true})"));
  EXPECT_FALSE(read(R"({"allowed":false})"));
  EXPECT_FALSE(read(R"({"allowed":true,"denied":true})"));
  EXPECT_FALSE(read(R"({"allowed":"true"})"));
  EXPECT_FALSE(read("{}"));
  EXPECT_FALSE(parse_access_review("{}"));
}

}  // namespace
}  // namespace carve::codec
