#include "codec/kube/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace carve::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(KubePage, ItemsGetTheKindThatTheServerOmits) {
  const auto page = parse_kube_page(
      R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},)"
      R"("items":[{"metadata":{"name":"a"}},{"kind":"Odd"}]})");
  ASSERT_TRUE(page) << page.error().what;
  EXPECT_EQ(page->version, "7");
  EXPECT_EQ(page->continues, "c");
  EXPECT_THAT(page->items, ElementsAre(R"({"metadata":{"name":"a"},"apiVersion":"v1","kind":"Pod"})",
                                       R"({"kind":"Odd","apiVersion":"v1"})"));
}

TEST(KubePage, AnEmptyListMayHaveNoItems) {
  const auto page = parse_kube_page(R"({"kind":"PodList","metadata":{"resourceVersion":"1"},"items":null})");
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->items.empty());
}

TEST(KubePage, TextThatIsNotAListIsAnError) {
  for (const std::string text : {"", "[]", "{}", R"({"kind":"Pod"})", R"({"kind":"PodList","items":3})",
                                 R"({"kind":"PodList","items":[3]})"}) {
    const auto page = parse_kube_page(text);
    ASSERT_FALSE(page) << text;
    EXPECT_EQ(page.error().code, Code::kDataLoss);
  }
}

TEST(KubeEvent, ReadsEveryKind) {
  const auto put = parse_kube_event(R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"12"}}})");
  ASSERT_TRUE(put);
  EXPECT_EQ(put->kind, KubeEvent::Kind::kPut);
  EXPECT_EQ(put->version, "12");
  EXPECT_EQ(put->object, R"({"metadata":{"resourceVersion":"12"}})");
  EXPECT_EQ(parse_kube_event(R"({"type":"MODIFIED","object":{}})")->kind, KubeEvent::Kind::kPut);
  EXPECT_EQ(parse_kube_event(R"({"type":"DELETED","object":{}})")->kind, KubeEvent::Kind::kDeleted);
  EXPECT_EQ(parse_kube_event(R"({"type":"BOOKMARK","object":{}})")->kind, KubeEvent::Kind::kBookmark);
  const auto error = parse_kube_event(R"({"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, KubeEvent::Kind::kError);
  EXPECT_EQ(error->status, 410);
  EXPECT_EQ(error->message, "too old");
}

TEST(KubeEvent, EverySpellingGivesTheSameEvent) {
  const std::string plain = R"({"type":"DELETED","object":{"a":["}",{"metadata":{"resourceVersion":"1"}}],)"
                            R"("metadata":{"name":"p","resourceVersion":"12","x":{"resourceVersion":"2"}}}})";
  const auto right = parse_kube_event(plain);
  ASSERT_TRUE(right);
  EXPECT_EQ(right->kind, KubeEvent::Kind::kDeleted);
  EXPECT_EQ(right->version, "12");
  EXPECT_THAT(plain, HasSubstr("\"object\":" + right->object + "}"));
  // Non-ASCII characters and escaped names are left to the document parser.
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type")", R"( { "type" )"},
           {R"({"type")", "{\"\xc3\xa9\":1,\"type\""},
           {R"("type")", R"("t\u0079pe")"},
           {R"("resourceVersion":"12")", R"("resourceVersion":"1\u0032")"},
           {R"({"type":"DELETED",)",
            R"({"type":"NEW","object":{"metadata":{"resourceVersion":"9"}},"type":"DELETED",)"}}) {
    auto text = plain;
    text.replace(text.find(from), from.size(), to);
    const auto event = parse_kube_event(text);
    ASSERT_TRUE(event) << text;
    EXPECT_EQ(event->kind, right->kind) << text;
    EXPECT_EQ(event->version, right->version) << text;
    EXPECT_THAT(event->object, HasSubstr("\"x\":{\"resourceVersion\":\"2\"}")) << text;
  }
}

// Watchers read the contents of an object, not which client wrote which field of it.
TEST(KubeEvent, HasNoManagedFields) {
  const std::string managed = R"("managedFields":[{"manager":"a","fieldsV1":{"f:metadata":{"f:x":{}}}}])";
  for (const auto& [with, without] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a":1,"metadata":{"name":"p",)" + managed + R"(},"b":{"managedFields":2}})",
            R"({"a":1,"metadata":{"name":"p"},"b":{"managedFields":2}})"},
           {R"({"metadata":{"name":"p" , )" + managed + R"( , "resourceVersion":"12"}})",
            R"({"metadata":{"name":"p" , "resourceVersion":"12"}})"}}) {
    const auto event = parse_kube_event(R"({"type":"ADDED","object":)" + with + "}");
    ASSERT_TRUE(event) << with;
    EXPECT_EQ(event->object, without);
  }
  // Where the member is the first one, or occurs twice, a part of it may remain: the object is the same and still JSON.
  for (const std::string& with :
       {R"({"metadata":{)" + managed + R"(,"name":"p"}})",
        R"({"metadata":{"name":"p",)" + managed + "," + managed + "}}",
        R"({"metadata":{"name":"q",)" + managed + R"(},"metadata":{"name":"p"}})"}) {
    const auto event = parse_kube_event(R"({"type":"ADDED","object":)" + with + "}");
    ASSERT_TRUE(event) << with;
    boost::json::error_code error;
    const auto object = boost::json::parse(event->object, error);
    ASSERT_FALSE(error) << event->object;
    EXPECT_EQ(object.at("metadata").at("name"), "p");
  }
}

TEST(KubeEvent, TextThatIsNotAnEventIsAnError) {
  for (const std::string line : {"", "x", "{}", R"({"type":"ADDED"})", R"({"type":"NEW","object":{}})",
                                 R"({"type":"ADDED","object":{}} x)", R"({"type":"ADDED","object":{"a":01}})",
                                 R"({"type":"ADDED","object":{},"object":3})",
                                 "{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\"}}"}) {
    EXPECT_FALSE(parse_kube_event(line)) << line;
  }
}

TEST(KubeEvent, ObjectsAsDeepAsSchemasAreRead) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"a":)";
  deep += "1" + std::string(100, '}');
  EXPECT_TRUE(parse_kube_event(R"({"type":"ADDED","object":)" + deep + "}"));
  const auto nested = [](std::size_t depth) {  // including the event and its object
    return R"({"type":"ADDED","object":{"a":)" + std::string(depth - 2, '[') + std::string(depth - 2, ']') + "}}";
  };
  EXPECT_TRUE(parse_kube_event(nested(128)));
  EXPECT_FALSE(parse_kube_event(nested(129)));
}

TEST(KubeEvent, AnErrorCodeIsAnHttpStatus) {
  const auto status = [](const std::string& code) {
    return parse_kube_event(R"({"type":"ERROR","object":{"code":)" + code + "}}")->status;
  };
  EXPECT_EQ(status("100"), 100);
  EXPECT_EQ(status("599"), 599);
  EXPECT_EQ(status("99"), status("600")) << "neither is accepted";
  EXPECT_EQ(status("\"410\""), status("600"));
  EXPECT_EQ(
      parse_kube_event(R"({"type":"ERROR","object":{"message":")" + std::string(201, 'x') + "\"}}")->message.size(),
      200U);
}

TEST(KubeMessage, IsTheMessageOfTheStatusOrThePrintableText) {
  EXPECT_EQ(kube_message(R"({"kind":"Status","message":"pods \"a\" not found"})"), "pods \"a\" not found");
  EXPECT_EQ(kube_message("bad\n\x1b[31mgateway"), "bad[31mgateway");
  EXPECT_EQ(kube_message(std::string(1000, 'x')).size(), 200U);
  EXPECT_EQ(kube_message(R"({"message":")" + std::string(1000, 'x') + "\"}").size(), 800U);
  EXPECT_EQ(kube_message("\x1f ~\x7f"), " ~");
}

TEST(KubeHasCause, ReadsTheCausesOfAStatus) {
  const std::string status = R"({"kind":"Status","details":{"causes":[{"reason":"A"},{"reason":"B","message":"m"}]}})";
  EXPECT_TRUE(kube_has_cause(status, "A"));
  EXPECT_TRUE(kube_has_cause(status, "B"));
  for (const char* other : {"", "C", "m"}) EXPECT_FALSE(kube_has_cause(status, other)) << other;
  for (const char* text : {"", "slow", "[]", "{}", R"({"details":{"causes":"A"}})", R"({"details":{"causes":["A"]}})",
                           R"({"reason":"A"})"})
    EXPECT_FALSE(kube_has_cause(text, "A")) << text;
}

TEST(KubeTarget, QueriesAreEncodedAndPathsAreChecked) {
  EXPECT_EQ(*kube_target("/api/v1/pods", {{"fieldSelector", "spec.nodeName=a b"}, {"x", "&"}}),
            "/api/v1/pods?fieldSelector=spec.nodeName%3Da%20b&x=%26");
  for (const std::string path : {"", "api", "//x", "/a b", "/a?b", "/a\r\nHost: x", "/a/../b", "/a/.."}) {
    const auto target = kube_target(path, {});
    ASSERT_FALSE(target) << path;
    EXPECT_THAT(target.error().what, HasSubstr("path"));
  }
}

TEST(KubePage, ItemsGetOnlyTheFieldsThatTheListHas) {
  EXPECT_THAT(parse_kube_page(R"({"kind":"List","items":[{"a":1}]})")->items, ElementsAre(R"({"a":1})"));
  EXPECT_THAT(parse_kube_page(R"({"kind":"PodList","items":[{"a":1}]})")->items,
              ElementsAre(R"({"a":1,"kind":"Pod"})"));
  EXPECT_THAT(parse_kube_page(R"({"kind":"List","apiVersion":"v1","items":[{"apiVersion":"v2"}]})")->items,
              ElementsAre(R"({"apiVersion":"v2"})"));
}

TEST(KubeEvent, TheDocumentParserHasTheSameDepthLimit) {
  const auto nested = [](std::size_t depth) {  // an escaped name: for the document parser
    return R"({"t\u0079pe":"ADDED","object":{"a":)" + std::string(depth - 2, '[') + std::string(depth - 2, ']') + "}}";
  };
  EXPECT_TRUE(parse_kube_event(nested(128)));
  EXPECT_FALSE(parse_kube_event(nested(129)));
}

TEST(KubeMessages, ForeignTextsAreQuotedUpToALimit) {
  const std::string longest(300, 'k');
  const auto quoted = [&](const std::string& what) { return std::count(what.begin(), what.end(), 'k'); };
  const auto plain = quoted(parse_kube_page(R"({"kind":""})").error().what);  // the error's own text has some, too
  EXPECT_EQ(quoted(parse_kube_page(R"({"kind":")" + longest + "\"}").error().what) - plain, 60);
  EXPECT_EQ(quoted(parse_kube_event(R"({"type":")" + longest + R"(","object":{}})").error().what) -
                quoted(parse_kube_event(R"({"type":"","object":{}})").error().what),
            40);
  EXPECT_EQ(quoted(kube_target(longest, {}).error().what), 200);
}

TEST(KubeTarget, EveryCharacterOfAPathIsAcceptedOrRefused) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:";
  for (int code = 0; code < 256; ++code) {
    const char c = static_cast<char>(code);
    const bool legal = plain.find(c) != std::string::npos;
    EXPECT_EQ(kube_target(std::string("/a") + c + "b", {}).has_value(), legal) << code;
    const std::string value(1, c);
    const bool as_it_is = legal && c != '/' && c != ':';
    EXPECT_EQ(kube_target("/", {{"k", value}})->size(), as_it_is ? 5U : 7U) << code;
  }
}

}  // namespace
}  // namespace carve::codec
