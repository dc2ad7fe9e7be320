#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>

#include "adapter/http/server.h"
#include "adapter/http/testing/h2_client.h"
#include "adapter/tls/issuer.h"
#include "base/fd.h"

// HTTP/2 over a real connection: who is offered it, and that requests which wait for somebody hold up no others.
namespace carve::http {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

/// A TLS client that offers both protocols, as Go's does.
class Connection {
 public:
  Connection(std::uint16_t port, const char* name, const tls::Pair& shown)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{20, 0};
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    static constexpr unsigned char kBoth[] = "\x02h2\x08http/1.1";
    SSL_CTX_set_alpn_protos(context_.get(), kBoth, sizeof kBoth - 1);
    show(shown);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_.get());
    std::string sent = name;
    SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, sent.data());
    EXPECT_EQ(SSL_connect(ssl_.get()), 1);
  }
  std::string protocol() const {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &chosen, &size);
    return {reinterpret_cast<const char*>(chosen), size};
  }
  /// Sends what the client has and reads on until `enough`; false: the server hung up, or was silent for too long.
  template <class Enough>
  bool talk(testing::H2Client& client, Enough enough) {
    while (true) {
      const auto out = client.output();
      if (!out.empty() && SSL_write(ssl_.get(), out.data(), static_cast<int>(out.size())) <= 0) return false;
      if (enough()) return true;
      char in[16384];
      const int size = SSL_read(ssl_.get(), in, sizeof in);
      if (size <= 0 || !client.feed({in, static_cast<std::size_t>(size)})) return enough();
    }
  }

 private:
  void show(const tls::Pair& pair) {
    const auto memory = [](const std::string& pem) {
      return std::unique_ptr<BIO, int (*)(BIO*)>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    };
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_bio_X509(memory(pair.certificate).get(), nullptr, nullptr, nullptr), X509_free);
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
        PEM_read_bio_PrivateKey(memory(pair.key).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key.get()), 1);
  }

  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  Fd socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, SSL_free};
};

class MultiplexedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto serving = tls::issue(authority_, {"carve-control", {"carve-control"}}, life_).value();
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.identity = Identity{serving.certificate, serving.key, authority_.certificate, "carve-control"};
    options.waits = [](const HttpAsk& ask) { return ask.path == "/wait"; };
    auto made = Server::open(options, [this](const HttpAsk& ask) { return reply(ask); }, log_);
    ASSERT_TRUE(made) << made.error().what;
    server_ = std::move(*made);
  }
  void TearDown() override { let_go(); }
  HttpReply reply(const HttpAsk& ask) {
    std::unique_lock lock(mutex_);
    if (ask.path == "/wait") {
      ++waiting_;
      moved_.notify_all();
      moved_.wait(lock, [this] { return go_; });
    }
    return {200, "text/plain", ask.path + " '" + ask.peer + "' " + ask.body};
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
  std::unique_ptr<Server> server_;
};

TEST_F(MultiplexedTest, TheNameByWhichWeAreCalledDecides) {
  EXPECT_EQ(connect().protocol(), "h2");
  EXPECT_EQ(connect("carve-control.carve-system.svc").protocol(), "http/1.1");
}

TEST_F(MultiplexedTest, RequestsThatWaitHoldUpNoOthersAndShareOneConnection) {
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

TEST_F(MultiplexedTest, StoppedWhileARequestRunsItIsAnswered) {
  auto busy = connect();
  auto idle = connect();
  testing::H2Client client, other;
  const auto one = client.ask("POST", "/wait", "");
  ASSERT_TRUE(busy.talk(client, [] { return true; }));
  ASSERT_TRUE(idle.talk(other, [] { return true; }));
  ASSERT_TRUE(wait_for_waiting(1));
  auto stopping = std::async(std::launch::async, [this] { server_->stop(seconds(30)); });
  EXPECT_FALSE(idle.talk(other, [] { return false; })) << "it is let go at once";
  ASSERT_TRUE(busy.talk(client, [&] { return client.told_to_leave(); }));
  let_go();
  EXPECT_TRUE(busy.talk(client, [&] { return client.answer(one).over; }));
  EXPECT_EQ(client.answer(one).body, "/wait 'carve-scheduler' ");
  stopping.get();
}

TEST_F(MultiplexedTest, WhoSpeaksSomethingElseIsCutOff) {
  auto connection = connect();
  testing::H2Client client;
  ASSERT_TRUE(connection.talk(client, [] { return true; }));
  EXPECT_TRUE(client.feed(""));
  auto second = connect();
  testing::H2Client none;
  (void)none.output();  // its greeting is not sent
  (void)none.ask("GET", "/a", "");
  EXPECT_FALSE(second.talk(none, [] { return false; }));
  EXPECT_EQ(server_->counts().malformed, 1U);
}

}  // namespace
}  // namespace carve::http
