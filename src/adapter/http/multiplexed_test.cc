#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "adapter/http/server.h"
#include "adapter/http/testing/h2_client.h"
#include "adapter/http/testing/tls_connection.h"
#include "adapter/tls/issuer.h"

// HTTP/2 over a real connection: which clients are offered it, and that requests that wait do not delay others.
namespace carve::http {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using Connection = testing::TlsConnection;

class MultiplexedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // the server may have closed the connection
    open({});
  }
  void open(const Limits& limits) {
    const auto serving = tls::issue(authority_, {"carve-control", {"carve-control"}}, life_).value();
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.limits = limits;
    options.identity = Identity{serving.certificate, serving.key, authority_.certificate, "carve-control"};
    options.waits = [](const HttpRequest& request) { return request.path == "/wait"; };
    auto made = Server::open(
        options, [this](const HttpRequest& request) { return reply(request); }, log_);
    ASSERT_TRUE(made) << made.error().what;
    server_ = std::move(*made);
  }
  void TearDown() override { let_go(); }
  HttpResponse reply(const HttpRequest& request) {
    std::unique_lock lock(mutex_);
    if (request.path == "/a") answered_on_.insert(std::this_thread::get_id());
    if (request.path == "/wait") {
      ++waiting_;
      moved_.notify_all();
      moved_.wait(lock, [this] { return go_; });
    }
    return {200, "text/plain", request.path + " '" + request.peer + "' " + request.body};
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    go_ = true;
    moved_.notify_all();
  }
  bool wait_for_waiting(int count) {
    std::unique_lock lock(mutex_);
    return moved_.wait_for(lock, seconds(20), [&] { return waiting_ == count; });
  }
  Connection connect(const char* name = "carve-control") const { return {server_->port(), name, client_}; }

  const Clock::WallTime now_ = SystemClock().wall_now();
  const tls::Life life_{now_ - hours(1), now_ + hours(24)};
  const tls::Pair authority_ = tls::make_authority("ours", life_).value();
  const tls::Pair client_ = tls::issue(authority_, {"carve-scheduler", {}}, life_).value();
  Log log_{[](std::string_view) {}};
  std::mutex mutex_;
  std::condition_variable moved_;
  int waiting_ = 0;
  bool go_ = false;
  std::set<std::thread::id> answered_on_;  // calls of /a
  std::unique_ptr<Server> server_;
};

TEST_F(MultiplexedTest, OffersHttp2ByTheServersName) {
  EXPECT_EQ(connect().protocol(), "h2");
  EXPECT_EQ(connect("carve-control.carve-system.svc").protocol(), "http/1.1");
}

TEST_F(MultiplexedTest, RequestsThatWaitDoNotDelayOthersOnTheSameConnection) {
  auto connection = connect();
  testing::H2Client client;
  std::vector<std::int32_t> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(client.ask("POST", "/wait", std::to_string(i)));
  const auto quick = client.ask("POST", "/a", "b");
  ASSERT_TRUE(connection.talk(client, [&] { return client.answer(quick).over; }));
  EXPECT_EQ(client.answer(quick).body, "/a 'carve-scheduler' b");
  ASSERT_TRUE(wait_for_waiting(8));
  EXPECT_FALSE(client.answer(waiting[0]).over);
  EXPECT_EQ(server_->counts().idle, 0U);
  let_go();
  ASSERT_TRUE(connection.talk(client, [&] {
    return std::all_of(waiting.begin(), waiting.end(), [&](std::int32_t one) { return client.answer(one).over; });
  }));
  for (std::size_t i = 0; i < waiting.size(); ++i)
    EXPECT_EQ(client.answer(waiting[i]).body, "/wait 'carve-scheduler' " + std::to_string(i));
  EXPECT_EQ(server_->counts().accepted, 1U);
}

TEST_F(MultiplexedTest, StopAnswersARunningRequest) {
  auto busy = connect();
  auto idle = connect();
  testing::H2Client client, other;
  const auto one = client.ask("POST", "/wait", "");
  ASSERT_TRUE(busy.talk(client, [] { return true; }));
  ASSERT_TRUE(idle.talk(other, [] { return true; }));
  ASSERT_TRUE(wait_for_waiting(1));
  auto stopping = std::async(std::launch::async, [this] { server_->stop(seconds(30)); });
  EXPECT_FALSE(idle.talk(other, [] { return false; })) << "the idle connection is closed immediately";
  ASSERT_TRUE(busy.talk(client, [&] { return client.told_to_leave(); }));
  let_go();
  EXPECT_TRUE(busy.talk(client, [&] { return client.answer(one).over; }));
  EXPECT_EQ(client.answer(one).body, "/wait 'carve-scheduler' ");
  stopping.get();
}

TEST_F(MultiplexedTest, DrainNotifiesTheClientImmediatelyAndStillAnswers) {
  auto early = connect();
  testing::H2Client client;
  ASSERT_TRUE(early.talk(client, [] { return true; }));
  const auto first = client.ask("POST", "/a", "x");
  ASSERT_TRUE(early.talk(client, [&] { return client.answer(first).over; }));
  const auto crossing = client.ask("POST", "/b", "y");  // sent before the client has received the notice
  server_->drain();
  ASSERT_TRUE(early.talk(client, [&] { return client.told_to_leave() && client.answer(crossing).over; }));
  EXPECT_EQ(client.answer(crossing).body, "/b 'carve-scheduler' y");
  auto late = connect();
  testing::H2Client other;
  const auto one = other.ask("POST", "/c", "z");
  ASSERT_TRUE(late.talk(other, [&] { return other.told_to_leave() && other.answer(one).over; }));
  EXPECT_EQ(other.answer(one).body, "/c 'carve-scheduler' z");
}

TEST_F(MultiplexedTest, RequestsAfterTheGoawayAreRefusedUnprocessed) {
  auto connection = connect();
  testing::H2Client client;
  const auto first = client.ask("POST", "/a", "x");
  ASSERT_TRUE(connection.talk(client, [&] { return client.answer(first).over; }));
  server_->stop(seconds(5));  // the client has not read anything of it yet
  const auto late = client.ask("POST", "/b", std::string(1000, 'y'));
  (void)connection.talk(client, [&] { return client.answer(late).over; });
  EXPECT_TRUE(client.refused(late)) << "the client may retry it elsewhere";
}

// Threads that share their connections would wake each other at each step of a call: four useless context switches.
TEST_F(MultiplexedTest, AConnectionStaysOnItsThread) {
  for (int i = 0; i < 4; ++i) {
    auto connection = connect();
    testing::H2Client client;
    answered_on_.clear();
    for (int call = 0; call < 100; ++call) {
      const auto one = client.ask("POST", "/a", std::string(6000, 'x'));
      ASSERT_TRUE(connection.talk(client, [&] { return client.answer(one).over; }));
    }
    EXPECT_EQ(answered_on_.size(), 1U);
  }
}

TEST_F(MultiplexedTest, ClosesConnectionsThatMissADeadline) {
  Limits limits;
  limits.body_time = limits.idle = seconds(1);
  open(limits);
  auto busy = connect();
  testing::H2Client often;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end) {  // longer than the idle limit
    const auto one = often.ask("POST", "/a", "x");
    ASSERT_TRUE(busy.talk(often, [&] { return often.answer(one).over; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(server_->counts().malformed, 0U);
  EXPECT_FALSE(busy.talk(often, [] { return false; })) << "the connection is idle";
  EXPECT_EQ(server_->counts().malformed, 0U);
  auto slow = connect();
  testing::H2Client never;
  (void)never.begin("/a", "x");
  EXPECT_FALSE(slow.talk(never, [] { return false; })) << "the request is never completed";
  EXPECT_EQ(server_->counts().malformed, 1U);
}

TEST_F(MultiplexedTest, ClosesConnectionsThatDoNotSpeakHttp2) {
  auto connection = connect();
  testing::H2Client client;
  ASSERT_TRUE(connection.talk(client, [] { return true; }));
  EXPECT_TRUE(client.feed(""));
  auto second = connect();
  testing::H2Client none;
  (void)none.output();  // the client's preface is not sent
  (void)none.ask("GET", "/a", "");
  EXPECT_FALSE(second.talk(none, [] { return false; }));
  EXPECT_EQ(server_->counts().malformed, 1U);
}

}  // namespace
}  // namespace carve::http
