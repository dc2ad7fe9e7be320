#include "adapter/kube/channel.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <utility>

namespace carve::kube {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr std::size_t kReadBuffer = 16384;
constexpr std::uint32_t kLargestHead = 32768;

class Identity final : public TlsIdentity {
 public:
  Identity() : context(asio::ssl::context::tls_client) {}
  asio::ssl::context context;
};

/// The seconds of a Retry-After header; 1 second for a date, which the API server does not send.
std::optional<std::chrono::seconds> seconds_in(std::string_view text) {
  if (text.empty()) return std::nullopt;
  int value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size() || value < 0) return std::chrono::seconds(1);
  return std::chrono::seconds(std::min(value, 3600));
}

class TlsChannel final : public Channel {
 public:
  TlsChannel(std::shared_ptr<Identity> identity, Endpoint endpoint)
      : identity_(std::move(identity)), endpoint_(std::move(endpoint)), stream_(io_, identity_->context) {}

  Result<void> open(const Patience& patience) {
    CARVE_TRY(const auto addresses, resolve(patience));
    CARVE_TRY_VOID(run("connect", patience, [&](auto done) {
      asio::async_connect(stream_.lowest_layer(), addresses,
                          [done](const error_code& wrong, const tcp::endpoint&) { done(wrong); });
    }));
    watch_the_peer();
    CARVE_TRY_VOID(expect_name());
    auto shaken = run("TLS handshake", patience,
                      [&](auto done) { stream_.async_handshake(asio::ssl::stream_base::client, done); });
    const auto verdict = SSL_get_verify_result(stream_.native_handle());
    if (!shaken && verdict != X509_V_OK) {
      return fail(Code::kUnavailable, fmt::format("{}: the server's certificate: {}", where(),
                                                  X509_verify_cert_error_string(verdict)));
    }
    return shaken;
  }

  Result<HttpResponse> exchange(const HttpRequest& request, bool stream, std::size_t largest,
                                const Patience& patience) override {
    answered_ = false;
    CARVE_TRY_VOID(send(request, patience));
    parser_.emplace();
    parser_->header_limit(kLargestHead);
    // A stream has no limit; every other body has.
    if (stream) {
      parser_->body_limit(boost::none);
    } else {
      parser_->body_limit(largest);
    }
    CARVE_TRY_VOID(
        run("read", patience, [&](auto done) { http::async_read_header(stream_, buffer_, *parser_, sized(done)); }));
    answered_ = true;
    HttpResponse response;
    response.status = static_cast<int>(parser_->get().result_int());
    const auto after = parser_->get()[http::field::retry_after];
    response.retry_after = seconds_in({after.data(), after.size()});
    if (stream && response.status == 200) return response;
    if (stream) parser_->body_limit(largest);
    if (!parser_->is_done()) {
      CARVE_TRY_VOID(
          run("read", patience, [&](auto done) { http::async_read(stream_, buffer_, *parser_, sized(done)); }));
    }
    response.keep_alive = parser_->keep_alive();
    response.body = std::move(parser_->get().body());
    parser_.reset();
    return response;
  }

  Result<std::string> read_some(const Patience& patience) override {
    if (!parser_) return fail(Code::kInternal, "no streamed answer is being read");
    auto& body = parser_->get().body();
    while (body.empty() && !parser_->is_done()) {
      CARVE_TRY_VOID(
          run("read", patience, [&](auto done) { http::async_read_some(stream_, buffer_, *parser_, sized(done)); }));
    }
    return std::exchange(body, {});
  }

  bool is_quiet() override {
    if (dead_ || !stream_.lowest_layer().is_open() || buffer_.size() != 0) return false;
    pollfd one{.fd = stream_.lowest_layer().native_handle(), .events = POLLIN | POLLRDHUP, .revents = 0};
    return ::poll(&one, 1, 0) == 0;
  }

  bool answered() const override { return answered_; }

 private:
  std::string where() const { return endpoint_.host + ":" + endpoint_.port; }

  /// Adapts a handler for Beast, which also passes a size to handlers.
  template <class Done>
  static auto sized(Done done) {
    return [done](const error_code& wrong, std::size_t) { done(wrong); };
  }

  /// Runs one asynchronous operation to completion. A deadline or a stop closes the socket, which ends the operation.
  template <class Start>
  Result<void> run(const char* what, const Patience& patience, Start start) {
    if (dead_) return fail(Code::kUnavailable, where() + ": the connection has ended");
    if (patience.stop.stop_requested()) return cancelled(what);
    error_code result;
    bool done = false;
    io_.restart();
    // The wake-up only ends run_one_until() below; it keeps no pointer to this call.
    const auto work = asio::make_work_guard(io_);
    const std::stop_callback wake(patience.stop, [this] { asio::post(io_, [] {}); });
    start([&result, &done](const error_code& wrong) {
      result = wrong;
      done = true;
    });
    while (!done && !patience.stop.stop_requested()) {
      if (io_.run_one_until(patience.deadline) == 0) break;
    }
    if (!done) return abandon(what, patience, &done);
    if (!result) return {};
    dead_ = true;
    if (result == http::error::body_limit || result == http::error::header_limit) {
      return fail(Code::kResourceExhausted, fmt::format("{}: {}: the answer is larger than allowed", where(), what));
    }
    return fail(Code::kUnavailable, fmt::format("{}: {}: {}", where(), what, result.message()));
  }

  Result<void> abandon(const char* what, const Patience& patience, const bool* done) {
    dead_ = true;
    resolver_.cancel();
    error_code ignored;
    stream_.lowest_layer().close(ignored);
    while (!*done) io_.run_one();
    if (patience.stop.stop_requested()) return cancelled(what);
    return fail(Code::kDeadlineExceeded, fmt::format("{}: {}: no answer before the deadline", where(), what));
  }

  Result<void> cancelled(const char* what) {
    dead_ = true;
    return fail(Code::kCancelled, fmt::format("{}: {}: stopped", where(), what));
  }

  Result<tcp::resolver::results_type> resolve(const Patience& patience) {
    error_code wrong;
    const auto address = asio::ip::make_address(endpoint_.host, wrong);
    const auto port = static_cast<std::uint16_t>(std::stoi(endpoint_.port));
    if (!wrong) {
      return tcp::resolver::results_type::create(tcp::endpoint(address, port), endpoint_.host, endpoint_.port);
    }
    tcp::resolver::results_type found;
    CARVE_TRY_VOID(run("resolve", patience, [&](auto done) {
      resolver_.async_resolve(endpoint_.host, endpoint_.port,
                              [done, &found](const error_code& failed, tcp::resolver::results_type results) {
                                found = std::move(results);
                                done(failed);
                              });
    }));
    return found;
  }

  /// Enables TCP keep-alive: the loss of a peer is detected within about 30 s, without cost while the peer is alive.
  void watch_the_peer() {
    const int socket = stream_.lowest_layer().native_handle();
    const auto set = [socket](int level, int name, int value) {
      (void)::setsockopt(socket, level, name, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);  // ms
    set(IPPROTO_TCP, TCP_NODELAY, 1);
  }

  Result<void> expect_name() {
    SSL* ssl = stream_.native_handle();
    error_code wrong;
    (void)asio::ip::make_address(endpoint_.tls_name, wrong);
    const auto& name = endpoint_.tls_name;
    bool set = false;
    if (!wrong) {
      set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1;
    } else {
      SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      // The macro SSL_set_tlsext_host_name contains a C cast; this is the call behind it.
      std::string sent = name;
      set = SSL_set1_host(ssl, name.c_str()) == 1 &&
            SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, sent.data()) == 1;
    }
    if (!set)
      return fail(Code::kInvalidArgument, "server name \"" + name + "\": not a name that a certificate can have");
    return {};
  }

  Result<void> send(const HttpRequest& request, const Patience& patience) {
    http::request<http::string_body> message;
    message.version(11);
    message.method_string(request.method);
    message.target(endpoint_.base + request.target);
    message.set(http::field::host, endpoint_.host.find(':') == std::string::npos
                                       ? endpoint_.host + ":" + endpoint_.port
                                       : "[" + endpoint_.host + "]:" + endpoint_.port);
    message.set(http::field::user_agent, "carve");
    message.set(http::field::accept, "application/json");
    if (!request.token.empty()) message.set(http::field::authorization, "Bearer " + request.token);
    if (!request.body.empty()) {
      message.set(http::field::content_type, request.content_type);
      message.body() = request.body;
    }
    message.prepare_payload();
    return run("write", patience, [&](auto done) { http::async_write(stream_, message, sized(done)); });
  }

  asio::io_context io_{1};
  std::shared_ptr<Identity> identity_;
  Endpoint endpoint_;
  tcp::resolver resolver_{io_};
  asio::ssl::stream<tcp::socket> stream_;
  boost::beast::flat_buffer buffer_{kReadBuffer + kLargestHead};
  std::optional<http::response_parser<http::string_body>> parser_;
  bool dead_ = false;
  bool answered_ = false;
};

}  // namespace

Result<std::shared_ptr<TlsIdentity>> make_identity(const Credentials& credentials) {
  auto made = std::make_shared<Identity>();
  auto& context = made->context;
  const auto wrong_in = [](const char* what, const error_code& wrong) {
    ERR_clear_error();
    return fail(Code::kInvalidArgument, fmt::format("{}: expected PEM: {}", what, wrong.message()));
  };
  error_code wrong;
  if (credentials.authority.empty()) {
    context.set_default_verify_paths(wrong);
  } else {
    context.add_certificate_authority(asio::buffer(credentials.authority), wrong);
  }
  if (wrong) return wrong_in("certificate-authority", wrong);
  if (!credentials.certificate.empty()) {
    context.use_certificate_chain(asio::buffer(credentials.certificate), wrong);
    if (wrong) return wrong_in("client-certificate", wrong);
    context.use_private_key(asio::buffer(credentials.key), asio::ssl::context::pem, wrong);
    if (wrong) return wrong_in("client-key", wrong);
  }
  context.set_verify_mode(asio::ssl::verify_peer, wrong);
  SSL_CTX* raw = context.native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // Like kubectl: a certificate that is configured as an authority is trusted even if another authority signed it.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(raw), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // saves 32 KiB per idle connection
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  SSL_CTX_set_alpn_protos(raw, kProtocols, sizeof kProtocols - 1);
  return made;
}

Result<std::unique_ptr<Channel>> Channel::connect(const Endpoint& endpoint, std::shared_ptr<TlsIdentity> identity,
                                                  const Patience& patience) {
  auto channel = std::make_unique<TlsChannel>(std::static_pointer_cast<Identity>(std::move(identity)), endpoint);
  CARVE_TRY_VOID(channel->open(patience));
  return channel;
}

}  // namespace carve::kube
