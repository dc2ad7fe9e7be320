#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "adapter/http/peer_client.h"
#include "adapter/http/server.h"
#include "adapter/kube/channel.h"
#include "adapter/tls/issuer.h"
#include "base/fd.h"

// Tests the server with the client for the API server, which uses OpenSSL independently and verifies the certificate.
namespace carve::http {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

class TlsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    authority_ = authority("ours");
    stranger_ = authority("theirs");
    identity_ = identity_of(authority_, authority_.certificate);
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.identity = identity_;
    options.limits.handshake = milliseconds(300);
    auto made = Server::open(
        options, [this](const HttpRequest& request) { return reply(request); }, log_);
    ASSERT_TRUE(made) << made.error().what;
    server_ = std::move(*made);
  }
  HttpResponse reply(const HttpRequest& request) {
    if (request.path == "/wait") {
      std::unique_lock lock(mutex_);
      came_ = true;
      moved_.notify_all();
      moved_.wait(lock, [this] { return go_; });
    }
    return {200, "text/plain", request.path + " '" + request.peer + "'"};
  }
  tls::Life life() const { return {now_ - hours(1), now_ + hours(24)}; }
  tls::Pair authority(const std::string& name) const { return tls::make_authority(name, life()).value(); }
  Identity identity_of(const tls::Pair& signer, const std::string& believed) const {
    const auto pair = tls::issue(signer, {"carve-control", {"carve-control.carve-system.svc"}}, life()).value();
    return {pair.certificate, pair.key, believed};
  }
  tls::Pair client_of(const tls::Pair& signer, const std::string& name) const {
    return tls::issue(signer, {name, {}}, life()).value();
  }
  Result<std::unique_ptr<kube::Channel>> connect(const tls::Pair& client, const std::string& believed,
                                                 const std::string& name = "carve-control.carve-system.svc") {
    kube::Credentials credentials;
    credentials.endpoint = {"127.0.0.1", std::to_string(server_->port()), name};
    credentials.authority = believed;
    credentials.certificate = client.certificate;
    credentials.key = client.key;
    CARVE_TRY(auto identity, kube::make_identity(credentials));
    return kube::Channel::connect(credentials.endpoint, identity, soon());
  }
  static kube::Patience soon() { return {steady_clock::now() + std::chrono::seconds(10), {}}; }
  static std::string ask(kube::Channel& channel, const std::string& path = "/a") {
    const auto answer = channel.exchange({"POST", path, "text/plain", "body", ""}, false, 1UL << 20, soon());
    return answer ? answer->body : answer.error().what;
  }
  std::string ask_as(const tls::Pair& client) {
    auto channel = connect(client, authority_.certificate);
    return channel ? ask(**channel) : channel.error().what;
  }

  const Clock::WallTime now_ = SystemClock().wall_now();
  Log log_{[](std::string_view) {}};
  tls::Pair authority_, stranger_;
  Identity identity_;
  std::mutex mutex_;
  std::condition_variable moved_;
  bool came_ = false, go_ = false;
  std::unique_ptr<Server> server_;
};

TEST_F(TlsServerTest, IdentifiesClientsOnlyByAVerifiedCertificate) {
  EXPECT_EQ(ask_as(client_of(authority_, "carve-scheduler")), "/a 'carve-scheduler'");
  EXPECT_EQ(ask_as({}), "/a ''");
  EXPECT_EQ(ask_as(client_of(stranger_, "carve-scheduler")), "/a ''") << "signed by another authority";
  EXPECT_EQ(ask_as({identity_.certificate, identity_.key}), "/a ''")
      << "a server certificate is not a client certificate";
  const auto forged = tls::make_authority("carve-scheduler", life()).value();
  EXPECT_EQ(ask_as(forged), "/a ''") << "self-signed";
  // A certificate from the day before yesterday.
  const auto old = tls::issue(authority_, {"carve-scheduler", {}}, {now_ - hours(72), now_ - hours(48)}).value();
  EXPECT_EQ(ask_as(old), "/a ''");
  const auto namesake = authority("ours");  // an authority with the same name and another key
  EXPECT_EQ(ask_as(client_of(namesake, "carve-scheduler")), "/a ''");
}

TEST_F(TlsServerTest, TheClientVerifiesTheServersCertificate) {
  const auto wrong = connect({}, stranger_.certificate);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().what, HasSubstr("certificate"));
  EXPECT_FALSE(connect({}, authority_.certificate, "another.name"));
  EXPECT_EQ(ask_as({}), "/a ''");
}

TEST_F(TlsServerTest, RenewDoesNotAffectOpenConnections) {
  const auto client = client_of(authority_, "carve-scheduler");
  auto before = connect(client, authority_.certificate);
  ASSERT_TRUE(before);
  ASSERT_EQ(ask(**before), "/a 'carve-scheduler'");
  const auto successor = authority("the next one");
  ASSERT_TRUE(server_->renew(identity_of(successor, successor.certificate + authority_.certificate)));
  EXPECT_EQ(ask(**before), "/a 'carve-scheduler'") << "the open connection continues";
  EXPECT_FALSE(connect(client, authority_.certificate)) << "a new connection sees the new certificate";
  auto after = connect(client, successor.certificate);
  ASSERT_TRUE(after) << after.error().what;
  EXPECT_EQ(ask(**after), "/a 'carve-scheduler'") << "clients of the old authority are still known";
  ASSERT_TRUE(server_->renew(identity_of(successor, successor.certificate)));
  auto later = connect(client, successor.certificate);
  ASSERT_TRUE(later);
  EXPECT_EQ(ask(**later), "/a ''") << "clients of the old authority are unknown";
}

TEST_F(TlsServerTest, AnInvalidIdentityChangesNothing) {
  const auto other = client_of(authority_, "x");
  for (const auto& wrong : {Identity{"nonsense", identity_.key, ""}, Identity{identity_.certificate, "nonsense", ""},
                            Identity{identity_.certificate, other.key, ""},
                            Identity{identity_.certificate, identity_.key, "nonsense"}}) {
    const auto done = server_->renew(wrong);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::kInvalidArgument);
    EXPECT_EQ(done.error().what.find("PRIVATE"), std::string::npos);
  }
  EXPECT_EQ(ask_as(client_of(authority_, "carve-scheduler")), "/a 'carve-scheduler'");
}

TEST_F(TlsServerTest, ClosesConnectionsWithoutAHandshake) {
  for (const std::string& words : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"),
                                   std::string("\x16\x03\x01")}) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_->port());
    ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
    pollfd one{.fd = socket.get(), .events = POLLRDHUP, .revents = 0};
    EXPECT_EQ(::poll(&one, 1, 10'000), 1) << "still connected after ten seconds";
  }
  EXPECT_EQ(ask_as({}), "/a ''");
}

TEST_F(TlsServerTest, StopAnswersARunningRequest) {
  const auto client = client_of(authority_, "carve-scheduler");
  auto busy = connect(client, authority_.certificate);
  auto idle = connect(client, authority_.certificate);
  ASSERT_TRUE(busy && idle);
  auto answer = std::async(std::launch::async, [&] { return ask(**busy, "/wait"); });
  {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(moved_.wait_for(lock, std::chrono::seconds(10), [this] { return came_; }));
  }
  auto stopping = std::async(std::launch::async, [this] { server_->stop(std::chrono::seconds(30)); });
  {
    const std::lock_guard lock(mutex_);
    go_ = true;
    moved_.notify_all();
  }
  EXPECT_EQ(answer.get(), "/wait 'carve-scheduler'");
  stopping.get();
  EXPECT_FALSE(connect(client, authority_.certificate));
}

TEST_F(TlsServerTest, APeerClientKeepsItsConnection) {
  const auto client = client_of(authority_, "carve-scheduler");
  const PeerAccess access{client.certificate, client.key, authority_.certificate, "carve-control.carve-system.svc"};
  const auto address = "127.0.0.1:" + std::to_string(server_->port());
  PeerClient peers;
  for (int i = 0; i < 3; ++i) {
    const auto answer = peers.post(access, address, "/bind", "body", std::chrono::seconds(10));
    ASSERT_TRUE(answer) << answer.error().what;
    EXPECT_EQ(*answer, "/bind 'carve-scheduler'");
  }
  EXPECT_EQ(server_->counts().accepted, 1U);
  PeerAccess other = access;
  other.authorities = stranger_.certificate;
  EXPECT_FALSE(PeerClient().post(other, address, "/bind", "body", std::chrono::seconds(10)));
  EXPECT_EQ(peers.post(access, "nowhere", "/bind", "", std::chrono::seconds(1)).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace carve::http
