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

// A roll as a Deployment makes it: the next replica comes, the one before is asked no more by whoever connects anew,
// and after its notice it ends. Clients that keep their connections, as Go's do, lose no call.
namespace carve::http {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRolls = 8;

class RollTest : public ::testing::Test {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
  /// `multiplexed`: over TLS, where one connection is for many requests.
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
  /// The server that a new connection goes to. A client holds it as long as it may use its port.
  std::shared_ptr<Server> endpoint() {
    const std::lock_guard lock(mutex_);
    return endpoint_;
  }
  /// Replica after replica is replaced while `ask` is called by some threads without pause; it says whether it was
  /// answered.
  void roll(bool multiplexed, const std::function<std::function<bool()>()>& client) {
    endpoint_ = open(multiplexed);
    std::atomic<bool> done = false;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] {
        const auto ask = client();
        while (!done) {
          ++(ask() ? answered_ : failed_);
          // Some leave pauses in which a connection idles.
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
      EXPECT_TRUE(within([&] { return answered_ > 20 * (i + 1) || failed_ > 0; })) << "calls meet this server";
      auto next = open(multiplexed);
      std::shared_ptr<Server> before;
      {
        const std::lock_guard lock(mutex_);
        before = std::exchange(endpoint_, next);
      }
      before->drain();
      const bool left = within([&] { return before.use_count() == 1; });
      before->stop(seconds(5));
      EXPECT_TRUE(left) << "each client is told to leave";
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

TEST_F(RollTest, OfCallsByHttp1NoneFails) {
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

/// One connection and what is on it. A request that the server has refused unseen, by its word, may be asked again.
struct Multiplexed {
  Multiplexed(std::uint16_t port, const char* name, const tls::Pair& shown) : connection(port, name, shown) {}
  testing::TlsConnection connection;
  testing::H2Client client;
};

TEST_F(RollTest, OfCallsByHttp2NoneFails) {
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

/// It may have done its part while the server's part of the handshake is on its way: cut off there, its first requests
/// would be lost and not refused.
TEST_F(RollTest, WhoIsInTheHandshakeWhenTheServerEndsIsToldToLeave) {
  const auto server = open(true);
  Multiplexed early(server->port(), kName, client_);  // so that the one after it is accepted, too, once this one is
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
