#include "adapter/http/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <utility>

#include "adapter/http/testing/h2_client.h"

namespace carve::http {
namespace {

using std::chrono::seconds;
using testing::H2Client;

class StreamsTest : public ::testing::Test {
 protected:
  static Limits small() {
    Limits limits;
    limits.head = 512;
    limits.body = 1000;
    return limits;
  }
  /// Exchanges the output of client and server until both have none; returns the complete requests.
  std::vector<Streams::Request> talk() {
    std::vector<Streams::Request> all;
    for (bool moved = true; moved;) {
      const auto from_client = client_.output();
      const auto from_server = streams_.output();
      moved = !from_client.empty() || !from_server.empty();
      client_.feed(from_server);
      auto asked = streams_.feed(from_client, now_);
      EXPECT_TRUE(asked) << asked.error().what;
      if (!asked) break;
      std::move(asked->begin(), asked->end(), std::back_inserter(all));
    }
    return all;
  }

  Streams::Time now_{};
  Streams streams_{small()};
  H2Client client_;
};

TEST_F(StreamsTest, RequestsAreConcurrentAndAnsweredInAnyOrder) {
  const auto first = client_.ask("POST", "/scheduler/bind?a=b", "one");
  const auto second = client_.ask("GET", "/v1/cluster", "");
  auto asked = talk();
  ASSERT_EQ(asked.size(), 2U);
  if (asked[0].stream != first) std::swap(asked[0], asked[1]);  // the request without a body may be complete first
  EXPECT_EQ(asked[0].http.method, "POST");
  EXPECT_EQ(asked[0].http.path, "/scheduler/bind");
  EXPECT_EQ(asked[0].http.query, "a=b");
  EXPECT_EQ(asked[0].http.body, "one");
  EXPECT_EQ(asked[1].http.method, "GET");
  EXPECT_EQ(streams_.open(), 2U);
  streams_.reply(asked[1].stream, {503, "text/plain", std::string(200'000, 'x')});  // longer than several windows
  (void)talk();
  EXPECT_EQ(client_.answer(second).status, "503");
  EXPECT_EQ(client_.answer(second).body.size(), 200'000U);
  EXPECT_FALSE(client_.answer(first).over);
  streams_.reply(asked[0].stream, {200, "application/json", "{}"});
  (void)talk();
  EXPECT_EQ(client_.answer(first).body, "{}");
  EXPECT_EQ(streams_.open(), 0U);
}

TEST_F(StreamsTest, RefusesLargeRequestsWithoutAffectingOthers) {
  const auto body = client_.ask("POST", "/a", std::string(1001, 'x'));
  const auto head = client_.ask("POST", "/" + std::string(600, 'x'), "");
  const auto fits = client_.ask("POST", "/c", std::string(1000, 'x'));
  const auto asked = talk();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].http.path, "/c");
  EXPECT_EQ(client_.answer(body).status, "413");
  EXPECT_EQ(client_.answer(head).status, "431");
  EXPECT_EQ(streams_.take_malformed(), 2U);
  streams_.reply(asked[0].stream, {200, "text/plain", "ok"});
  (void)talk();
  EXPECT_EQ(client_.answer(fits).body, "ok");
  EXPECT_EQ(streams_.open(), 0U);
}

TEST_F(StreamsTest, LimitsTheBufferedBytesOfAllRequestsTogether) {
  (void)client_.begin("/a", std::string(600, 'x'));
  const auto second = client_.begin("/b", std::string(600, 'x'));
  EXPECT_TRUE(talk().empty());
  EXPECT_EQ(client_.answer(second).status, "413");
  EXPECT_TRUE(streams_.receiving());
}

TEST_F(StreamsTest, CancelsRequestsThatAreNotCompletedInTime) {
  const auto slow = client_.begin("/a", "x");
  EXPECT_TRUE(talk().empty());
  EXPECT_EQ(streams_.drop_slow(now_ - seconds(1)), 0U);
  now_ += seconds(30);
  EXPECT_EQ(streams_.drop_slow(now_ - seconds(1)), 1U);
  (void)talk();
  EXPECT_TRUE(client_.answer(slow).over);
  EXPECT_FALSE(streams_.receiving());
  EXPECT_EQ(streams_.open(), 0U);
}

TEST_F(StreamsTest, DoesNotAnswerCancelledRequests) {
  const auto one = client_.ask("POST", "/a", "x");
  const auto asked = talk();
  ASSERT_EQ(asked.size(), 1U);
  client_.cancel(one);
  (void)talk();
  EXPECT_EQ(streams_.open(), 0U);
  streams_.reply(asked[0].stream, {200, "text/plain", "late"});
  EXPECT_EQ(streams_.output(), "");
}

TEST_F(StreamsTest, AfterLeaveItAnswersReceivedRequestsAndAcceptsNoMore) {
  const auto one = client_.ask("POST", "/a", "x");
  const auto asked = talk();
  ASSERT_EQ(asked.size(), 1U);
  streams_.leave();
  (void)talk();
  EXPECT_TRUE(client_.told_to_leave());
  streams_.reply(asked[0].stream, {200, "text/plain", "ok"});
  (void)talk();
  EXPECT_EQ(client_.answer(one).body, "ok");
}

TEST_F(StreamsTest, BytesThatAreNotHttp2AreAnError) {
  const auto asked = streams_.feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n", now_);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace carve::http
