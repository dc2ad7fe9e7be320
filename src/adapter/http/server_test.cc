#include "adapter/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "adapter/http/testing/plain_client.h"

namespace carve::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Client = testing::PlainClient;
using testing::get;
using testing::post;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// Handlers wait here until the test opens it.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    moved_.notify_all();
    moved_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    moved_.notify_all();
  }
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return moved_.wait_for(lock, std::chrono::seconds(10), [&] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  int waiting_ = 0;
  bool open_ = false;
};

class HttpServer : public ::testing::Test {
 protected:
  void open(Limits limits = {}) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.limits = limits;
    options.waits = [](const HttpRequest& request) { return request.path == "/wait"; };
    auto made = Server::open(
        options, [this](const HttpRequest& request) { return reply(request); }, log_);
    ASSERT_TRUE(made) << made.error().what;
    server_ = std::move(*made);
  }
  HttpResponse reply(const HttpRequest& request) {
    ++asked_;
    if (request.path == "/wait") gate_.wait();
    if (request.path == "/throw") throw std::runtime_error("a library's");
    if (request.path == "/big") return {200, "text/plain", std::string(8UL << 20, 'x')};
    return {request.path == "/nothing" ? 404 : 200, "text/plain",
            request.method + " " + request.path + " " + request.query + " " + std::to_string(request.body.size()) +
                " '" + request.peer + "'"};
  }
  bool serves() {
    Client client(server_->port());
    return client.send(get("/still")) && client.answer().find("GET /still") != std::string::npos;
  }
  /// Waits until this number of connections are idle: a client can read an answer before the server marks it idle.
  bool rests(std::size_t idle) {
    const auto end = steady_clock::now() + std::chrono::seconds(10);
    while (server_->counts().idle < idle) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  /// Waits until at most this number of connections are left.
  bool settles(std::size_t open) {
    const auto end = steady_clock::now() + std::chrono::seconds(10);
    while (server_->counts().open > open) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }

  Log log_{[](std::string_view) {}};
  std::atomic<int> asked_ = 0;
  Gate gate_;
  std::unique_ptr<Server> server_;
};

TEST_F(HttpServer, ServesSeveralRequestsOnOneConnection) {
  open();
  Client client(server_->port());
  client.send(get("/a?x=1&y"));
  EXPECT_THAT(client.answer(), HasSubstr("GET /a x=1&y 0 ''"));
  client.send(post("/b", "12345"));
  EXPECT_THAT(client.answer(), HasSubstr("POST /b  5 ''"));
  client.send(get("/c") + get("/nothing"));  // both before the first answer
  EXPECT_THAT(client.answer(), HasSubstr("GET /c"));
  EXPECT_THAT(client.answer(), StartsWith("HTTP/1.1 404 Not Found"));
  client.send("POST /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_THAT(client.answer(), HasSubstr("POST /d  5"));
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_THAT(client.answer(), StartsWith("HTTP/1.1 100 Continue"));
  client.send("ab");
  EXPECT_THAT(client.answer(), HasSubstr("POST /e  2"));
  client.send("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.answer(), HasSubstr("Connection: close"));
  EXPECT_TRUE(client.over());
  EXPECT_EQ(server_->counts().accepted, 1U);
}

TEST_F(HttpServer, AnswersHeadWithoutABodyAndServesOldClients) {
  open();
  Client client(server_->port());
  client.send(get("/abcd") + "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\n" + get("/b"));
  const auto full = client.answer();  // "GET /abcd" is as long as "HEAD /abc"
  EXPECT_EQ(client.answer(true), full.substr(0, full.find("\r\n\r\n") + 4)) << "the same head, and no body";
  EXPECT_THAT(client.answer(), HasSubstr("GET /b"));
  Client old(server_->port());
  old.send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.answer(), HasSubstr("GET /a"));
  EXPECT_TRUE(old.over());
}

TEST_F(HttpServer, AnExceptionInTheHandlerIsStatus500) {
  open();
  Client client(server_->port());
  client.send(get("/throw") + get("/after"));
  const auto answer = client.answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500"));
  EXPECT_EQ(answer.find("library"), std::string::npos);
  EXPECT_THAT(client.answer(), HasSubstr("GET /after"));
}

TEST_F(HttpServer, RefusesLargeRequestsBeforeReadingThem) {
  Limits limits;
  limits.body = 1000;
  limits.head = 2000;
  open(limits);
  {
    Client client(server_->port());
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
    EXPECT_THAT(client.answer(), StartsWith("HTTP/1.1 413"));
    EXPECT_TRUE(client.over());
  }
  {
    Client client(server_->port());  // the client sends all of it before it reads the answer
    client.send(post("/a", std::string(700'000, 'x')));
    EXPECT_THAT(client.answer(), StartsWith("HTTP/1.1 413"));
  }
  {
    Client client(server_->port());
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 11; ++i) client.send("64\r\n" + std::string(100, 'x') + "\r\n");
    EXPECT_THAT(client.answer(), StartsWith("HTTP/1.1 413"));
  }
  {
    Client client(server_->port());
    client.send("GET /a HTTP/1.1\r\nX: " + std::string(3000, 'x') + "\r\n\r\n");
    EXPECT_THAT(client.answer(), StartsWith("HTTP/1.1 431"));
  }
  Client client(server_->port());
  client.send(post("/a", std::string(1000, 'x')));
  EXPECT_THAT(client.answer(), HasSubstr("POST /a  1000"));
  EXPECT_EQ(asked_, 1) << "refused requests do not reach the application";
}

TEST_F(HttpServer, ClosesSlowConnections) {
  Limits limits;
  limits.head_time = milliseconds(150);
  limits.body_time = milliseconds(150);
  limits.idle = milliseconds(400);
  open(limits);
  {
    Client client(server_->port());  // an occasional byte does not extend the limit
    const auto begin = steady_clock::now();
    const auto end = begin + std::chrono::seconds(5);
    while (client.send("G") && steady_clock::now() < end && server_->counts().malformed == 0)
      std::this_thread::sleep_for(milliseconds(20));
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(3));
    EXPECT_EQ(server_->counts().malformed, 1U);
  }
  {
    Client client(server_->port());
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    EXPECT_EQ(client.answer(), "");
    EXPECT_TRUE(settles(0));
    EXPECT_EQ(server_->counts().malformed, 2U);
  }
  Client idle(server_->port());
  idle.send(get("/a"));
  EXPECT_THAT(idle.answer(), HasSubstr("GET /a"));
  EXPECT_TRUE(idle.over()) << "an idle connection is closed without an answer";
  EXPECT_EQ(asked_, 1);
}

TEST_F(HttpServer, ClosesConnectionsWhoseClientDoesNotReadTheAnswer) {
  Limits limits;
  limits.write_time = milliseconds(300);
  open(limits);
  Client client(server_->port());
  client.send(get("/big") + get("/big"));
  EXPECT_TRUE(settles(0));
  EXPECT_TRUE(serves());
}

TEST_F(HttpServer, SurvivesInvalidAndIncompleteRequests) {
  open();
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9), std::string("hello\r\n\r\n"), std::string(300, '\0'),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        std::string("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("GET / HTTP/1.1\r\n no: field\r\n\r\n"), std::string("GET\r\n\r\n")}) {
    Client client(server_->port());
    client.send(garbage);
    client.half_close();
    EXPECT_THAT(client.answer(), AnyOf(IsEmpty(), StartsWith("HTTP/1.1 4"))) << garbage;
  }
  {
    Client client(server_->port());  // closed in the middle of a body
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    client.half_close();
    EXPECT_THAT(client.answer(), AnyOf(IsEmpty(), StartsWith("HTTP/1.1 4")));
  }
  for (int i = 0; i < 20; ++i) {
    Client client(server_->port());
    client.send(i % 2 == 0 ? "GET /a HTT" : get("/a"));
    client.reset();
  }
  std::minstd_rand random(1);
  for (int i = 0; i < 50; ++i) {
    Client client(server_->port());
    std::string bytes = i % 2 == 0 ? "POST /a HTTP/1.1\r\n" : "";
    for (int k = 0; k < 200; ++k) bytes += static_cast<char>(random());
    client.send(bytes);
    client.half_close();
    (void)client.answer();
  }
  EXPECT_TRUE(serves());
  EXPECT_TRUE(settles(0));
}

TEST_F(HttpServer, AnswersAHalfClosedClient) {
  open();
  Client client(server_->port());
  client.send(post("/a", "x"));
  client.half_close();
  EXPECT_THAT(client.answer(), HasSubstr("POST /a  1"));
}

TEST_F(HttpServer, TwoHundredConnectionsOnTwoThreads) {
  open();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(std::make_unique<Client>(server_->port()));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < clients.size(); ++i) ASSERT_TRUE(clients[i]->send(get("/" + std::to_string(i))));
    for (std::size_t i = 0; i < clients.size(); ++i)
      ASSERT_THAT(clients[i]->answer(), HasSubstr("GET /" + std::to_string(i) + " "));
  }
  EXPECT_EQ(asked_, 600);
  EXPECT_EQ(server_->counts().open, 200U);
}

TEST_F(HttpServer, ClosesTheLongestIdleConnectionAtTheLimit) {
  Limits limits;
  limits.connections = 4;
  open(limits);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(get("/a"));
    ASSERT_THAT(clients.back()->answer(), HasSubstr("GET /a"));
    ASSERT_TRUE(rests(clients.size()));
  }
  clients[0]->send(get("/again"));  // the first one is now the most recently active
  ASSERT_THAT(clients[0]->answer(), HasSubstr("/again"));
  ASSERT_TRUE(rests(4));
  EXPECT_TRUE(serves());
  EXPECT_TRUE(clients[1]->over());
  clients[0]->send(get("/still"));
  EXPECT_THAT(clients[0]->answer(), HasSubstr("/still"));
  EXPECT_EQ(server_->counts().evicted, 1U);
}

TEST_F(HttpServer, RefusesANewConnectionWhenAllAreBusy) {
  Limits limits;
  limits.connections = 2;
  open(limits);
  Client a(server_->port()), b(server_->port());
  a.send(get("/wait"));
  b.send(get("/wait"));
  ASSERT_TRUE(gate_.wait_for(2));
  Client late(server_->port());
  EXPECT_TRUE(late.over());
  EXPECT_EQ(server_->counts().refused, 1U);
  gate_.open();
  EXPECT_THAT(a.answer(), HasSubstr("/wait"));
  EXPECT_THAT(b.answer(), HasSubstr("/wait"));
}

TEST_F(HttpServer, RequestsThatWaitDoNotDelayOthers) {
  Limits limits;
  limits.threads = 1;
  limits.waiting_threads = 1;
  limits.queue = milliseconds(100);
  open(limits);
  Client slow(server_->port()), behind(server_->port());
  slow.send(get("/wait"));
  ASSERT_TRUE(gate_.wait_for(1));
  behind.send(get("/wait"));
  const auto end = steady_clock::now() + milliseconds(200);
  int others = 0;
  for (; others <= 10 || steady_clock::now() < end; ++others) ASSERT_TRUE(serves());
  EXPECT_EQ(asked_, 1 + others);
  gate_.open();
  EXPECT_THAT(slow.answer(), HasSubstr("GET /wait"));
  EXPECT_THAT(behind.answer(), StartsWith("HTTP/1.1 503")) << "it was queued longer than the limit";
  EXPECT_EQ(asked_, 1 + others);
}

TEST_F(HttpServer, StopAnswersARunningRequest) {
  open();
  Client idle(server_->port()), busy(server_->port());
  idle.send(get("/a"));
  ASSERT_THAT(idle.answer(), HasSubstr("GET /a"));
  busy.send(get("/wait"));
  ASSERT_TRUE(gate_.wait_for(1));
  auto stopping = std::async(std::launch::async, [this] { server_->stop(std::chrono::seconds(30)); });
  EXPECT_TRUE(idle.over()) << "an idle connection is closed immediately";
  while (Client(server_->port()).connected()) {
  }
  EXPECT_EQ(stopping.wait_for(milliseconds(50)), std::future_status::timeout);
  gate_.open();
  const auto answer = busy.answer();
  EXPECT_THAT(answer, HasSubstr("GET /wait"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_EQ(stopping.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  server_->stop(std::chrono::seconds(1));
}

TEST_F(HttpServer, AfterDrainAConnectionEndsWithItsNextAnswer) {
  open();
  Client early(server_->port());
  early.send(get("/a"));
  ASSERT_THAT(early.answer(), Not(HasSubstr("Connection: close")));
  server_->drain();
  Client late(server_->port());
  for (auto* client : {&early, &late}) {
    client->send(get("/b"));
    const auto answer = client->answer();
    EXPECT_THAT(answer, HasSubstr("GET /b"));
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
    EXPECT_TRUE(client->over());
  }
}

TEST_F(HttpServer, StopClosesConnectionsAfterTheGracePeriod) {
  Limits limits;
  open(limits);
  Client slow(server_->port());
  slow.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
  const auto end = steady_clock::now() + std::chrono::seconds(5);
  while (server_->counts().open == 0 && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  const auto begin = steady_clock::now();
  server_->stop(milliseconds(100));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(asked_, 0);
}

TEST(HttpListen, ParsesAddressesAndRefusesInvalidOnes) {
  Log log([](std::string_view) {});
  const auto open = [&log](const std::string& listen) {
    ServerOptions options;
    options.listen = listen;
    return Server::open(
        options, [](const HttpRequest&) { return HttpResponse{}; }, log);
  };
  for (const char* good : {"127.0.0.1:0", ":0"}) {
    auto made = open(good);
    ASSERT_TRUE(made) << made.error().what;
    EXPECT_TRUE(Client((*made)->port()).connected()) << good;
    const auto taken = open("127.0.0.1:" + std::to_string((*made)->port()));
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Code::kUnavailable);
  }
  for (const char* bad : {"", "8080", ":", ":70000", ":-1", "nowhere:1", "1.2.3:4", ":1x"}) {
    const auto made = open(bad);
    ASSERT_FALSE(made) << bad;
    EXPECT_EQ(made.error().code, Code::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace carve::http
