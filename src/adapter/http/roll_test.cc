#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/http/server.h"
#include "adapter/http/testing/h2_client.h"
#include "adapter/http/testing/plain_client.h"
#include "adapter/http/testing/tls_connection.h"
#include "adapter/tls/issuer.h"

// A rolling update like a Deployment's: the next replica starts, new connections go to it, and the previous replica
// ends after drain(). Clients that keep their connections, like Go's, lose no call.
namespace carve::http {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRolls = 8;

class RollTest : public ::testing::Test {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
  /// `multiplexed`: TLS and HTTP/2, where many requests share one connection.
  std::shared_ptr<Server> open(bool multiplexed) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.waits = [](const HttpRequest& request) { return request.path == "/wait"; };
    if (multiplexed) options.identity = Identity{serving_.certificate, serving_.key, authority_.certificate, kName};
    auto made = Server::open(
        options,
        [](const HttpRequest& request) {
          if (request.path == "/wait") std::this_thread::sleep_for(milliseconds(2));
          return HttpResponse{200, "text/plain", request.body};
        },
        log_);
    EXPECT_TRUE(made) << made.error().what;
    return std::move(*made);
  }
  /// The server for new connections. A client keeps the pointer as long as it may use the server's port.
  std::shared_ptr<Server> endpoint() {
    const std::lock_guard lock(mutex_);
    return endpoint_;
  }
  /// Replaces one replica after the other while several threads call the function that `client` returns. That function
  /// returns true when its request was answered.
  void roll(bool multiplexed, const std::function<std::function<bool()>()>& client) {
    endpoint_ = open(multiplexed);
    std::atomic<bool> done = false;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] {
        const auto ask = client();
        while (!done) {
          ++(ask() ? answered_ : failed_);
          // Some threads pause, so that their connections are idle.
          std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
        }
      });
    }
    const auto within = [](const std::function<bool()>& condition) {
      const auto limit = std::chrono::steady_clock::now() + seconds(20);
      while (!condition() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(milliseconds(1));
      return condition();
    };
    for (int i = 0; i < kRolls; ++i) {
      EXPECT_TRUE(within([&] { return answered_ > 20 * (i + 1) || failed_ > 0; })) << "calls reach this server";
      auto next = open(multiplexed);
      std::shared_ptr<Server> before;
      {
        const std::lock_guard lock(mutex_);
        before = std::exchange(endpoint_, next);
      }
      before->drain();
      const bool left = within([&] { return before.use_count() == 1; });
      before->stop(seconds(5));
      EXPECT_TRUE(left) << "each client receives the notice";
      if (!left) break;
    }
    done = true;
    threads.clear();
    EXPECT_EQ(failed_, 0) << "of " << answered_ + failed_;
    RecordProperty("answered", answered_.load());
  }

  static constexpr char kName[] = "carve-control";
  const Clock::WallTime now_ = SystemClock().wall_now();
  const tls::Life life_{now_ - hours(1), now_ + hours(24)};
  const tls::Pair authority_ = tls::make_authority("ours", life_).value();
  const tls::Pair serving_ = tls::issue(authority_, {kName, {kName}}, life_).value();
  const tls::Pair client_ = tls::issue(authority_, {"carve-scheduler", {}}, life_).value();
  Log log_{[](std::string_view) {}};
  std::mutex mutex_;
  std::shared_ptr<Server> endpoint_;
  std::atomic<int> answered_ = 0, failed_ = 0;
};

TEST_F(RollTest, NoHttp1CallFails) {
  roll(false, [this] {
    std::shared_ptr<Server> server;
    std::shared_ptr<testing::PlainClient> kept;
    return [this, server, kept]() mutable {
      if (!kept) {
        server = endpoint();
        kept = std::make_shared<testing::PlainClient>(server->port());
      }
      const bool sent = kept->send(testing::post("/wait", "body"));
      const auto answer = sent ? kept->answer() : std::string();
      const bool good = answer.find(" 200 ") != std::string::npos && answer.find("body") != std::string::npos;
      if (!good || answer.find("Connection: close") != std::string::npos) {
        kept.reset();
        server.reset();
      }
      return good;
    };
  });
}

/// One connection and its requests. A request that the server refused unprocessed may be sent again.
struct Multiplexed {
  Multiplexed(std::uint16_t port, const char* name, const tls::Pair& shown) : connection(port, name, shown) {}
  testing::TlsConnection connection;
  testing::H2Client client;
};

TEST_F(RollTest, NoHttp2CallFails) {
  roll(true, [this] {
    std::shared_ptr<Server> server;
    std::shared_ptr<Multiplexed> kept;
    return [this, server, kept]() mutable {
      for (int attempt = 0; attempt < 3; ++attempt) {
        if (!kept || kept->client.told_to_leave()) {
          kept.reset();
          server = endpoint();
          kept = std::make_shared<Multiplexed>(server->port(), kName, client_);
        }
        auto& client = kept->client;
        const auto one = client.ask("POST", "/wait", "body"), other = client.ask("POST", "/a", "other");
        (void)kept->connection.talk(client, [&] { return client.answer(one).over && client.answer(other).over; });
        const bool good = client.answer(one).body == "body" && client.answer(other).body == "other";
        if (good) return true;
        if (!client.refused(one) && !client.refused(other)) return false;
      }
      return false;
    };
  });
}

/// The client may have finished its part of the handshake while the server's part is under way. If the server closed
/// the connection then, the client's first requests would be lost instead of refused.
TEST_F(RollTest, AClientInTheHandshakeReceivesTheNoticeWhenTheServerStops) {
  const auto server = open(true);
  Multiplexed early(server->port(), kName, client_);  // when this one is accepted, the next one is accepted too
  Fd socket = testing::TlsConnection::connected(server->port());
  while (server->counts().open < 2) std::this_thread::yield();
  std::jthread stopping([&server] { server->stop(seconds(5)); });
  (void)early.connection.talk(early.client, [&] { return early.client.told_to_leave(); });
  testing::TlsConnection late(std::move(socket), kName, client_);
  testing::H2Client client;
  const auto asked = client.ask("POST", "/a", "body");
  (void)late.talk(client, [&] { return client.told_to_leave(); });
  EXPECT_TRUE(client.told_to_leave());
  EXPECT_TRUE(client.refused(asked) || client.answer(asked).body == "body");
}

}  // namespace
}  // namespace carve::http
