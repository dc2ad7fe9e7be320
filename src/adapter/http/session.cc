#include "adapter/http/session.h"

#include <fmt/core.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

namespace carve::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace wire = boost::beast::http;
using boost::system::error_code;

constexpr auto kDone = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kPiece = 8192;
constexpr std::size_t kRecord = 16384;  // bytes: the maximum of one TLS record
constexpr std::size_t kMostDrained = 1UL << 20;
constexpr std::chrono::seconds kDrainTime{1};
constexpr std::chrono::milliseconds kMoreEvery{250};  // between two calls of HttpResponse::more

HttpResponse plain(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

/// The HTTP status for a request that could not be read; 0: the client has gone.
int refusal_for(const error_code& wrong) {
  if (wrong == wire::error::body_limit) return 413;
  if (wrong == wire::error::header_limit || wrong == wire::error::buffer_overflow) return 431;
  if (wrong.category() == make_error_code(wire::error::bad_method).category()) return 400;
  return 0;  // an error of the connection itself
}

const char* words_for(int status) {
  switch (status) {
    case 413: return "the body is larger than allowed";
    case 431: return "the head is larger than allowed";
    default:
      return "this is not an HTTP request";
  }
}

/// The bearer's token in these header fields; "": none.
std::string token_in(const wire::fields& fields) {
  constexpr std::string_view kBearer = "Bearer ";
  const auto found = fields[wire::field::authorization];
  const std::string_view text(found.data(), found.size());
  if (text.size() > kBearer.size() && beast::iequals(text.substr(0, kBearer.size()), kBearer))
    return std::string(text.substr(kBearer.size()));
  const auto own = fields["X-Carve-Token"];
  return {own.data(), own.size()};
}

std::string chunk(std::string_view text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); }

/// The head of a response. nullopt: its length is unknown, and it ends the connection.
std::string head_of(const HttpResponse& reply, std::optional<std::size_t> size, bool keep) {
  auto status = wire::int_to_status(static_cast<unsigned>(reply.status));
  if (status == wire::status::unknown) status = wire::status::internal_server_error;
  const auto reason = wire::obsolete_reason(status);
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", static_cast<unsigned>(status),
                                 std::string_view(reason.data(), reason.size()), reply.type);
  for (const auto& [name, value] : reply.fields) head += name + ": " + value + "\r\n";
  head += size ? fmt::format("Content-Length: {}\r\n", *size) : "Transfer-Encoding: chunked\r\n";
  return head + (keep ? "\r\n" : "Connection: close\r\n\r\n");
}

bool speaks_http2(SSL* ssl) {
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl, &chosen, &size);
  return std::string_view(reinterpret_cast<const char*>(chosen), size) == "h2";
}

}  // namespace

struct Session::Flow {
  using Time = asio::steady_timer::time_point;
  Flow(const Limits& limits, const asio::any_io_executor& executor)
      : streams(limits), clock(executor), quiet(executor, Time::max()), patience(executor) {}
  Streams streams;
  asio::steady_timer clock;    // used by keep_time()
  Time read_by = Time::max();  // the deadline of the current read; max: none
  Time written_by = Time::max();
  asio::steady_timer quiet;     // cancelled when `answering` becomes 0
  asio::steady_timer patience;  // how long to wait for a client to close after the last answer
  std::size_t answering = 0;    // coroutines that still use this object, such as requests that wait
  bool writing = false;
  bool over = false;      // the client has gone and cannot be answered
  bool notified = false;  // GOAWAY was sent: the client sends its next requests elsewhere
  bool leaving = false;   // the connection ends when the received requests are answered
  bool hung_up = false;   // nothing more is written; what arrives is discarded
};

Session::Session(Common& common, asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> context)
    : common_(common),
      tcp_(std::move(socket)),
      context_(std::move(context)),
      buffer_(std::max(common.limits.head, kPiece) + kPiece) {
  if (context_) tls_.emplace(tcp_, *context_);
  rest();
}

void Session::rest() {
  idle_since_ = std::chrono::steady_clock::now().time_since_epoch().count();
  busy_ = false;
}

void Session::end(bool busy_too) {
  if (flow_ != nullptr && !busy_too) return asio::co_spawn(executor(), leave_flow(*flow_), asio::detached);
  if ((busy_ || in_handshake_) && !busy_too) return;
  error_code ignored;
  if (!busy_too && tcp_.socket().available(ignored) > 0)
    return;  // a request has arrived: it is read and answered first
  tcp_.close();
}

void Session::drain() {
  if (flow_ != nullptr) asio::co_spawn(executor(), drain_flow(*flow_), asio::detached);
}

void Session::learn_peer() {
  SSL* ssl = tls_->native_handle();
  X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || !verified_ || SSL_get_verify_result(ssl) != X509_V_OK) return;
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  // A subject with two CNs identifies no client.
  if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) return;
  unsigned char* text = nullptr;
  const int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size <= 0) return;
  peer_.assign(reinterpret_cast<const char*>(text), static_cast<std::size_t>(size));
  OPENSSL_free(text);
  known_ = true;
}

asio::awaitable<void> Session::run() {
  error_code ignored;
  tcp_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  tcp_.socket().set_option(asio::socket_base::keep_alive(true), ignored);
  if (!tls_) {
    co_await requests();
    tcp_.close();
    co_return;
  }
  // The handshake succeeds with any client certificate; the routes check the permissions.
  tls_->set_verify_callback(
      [this](bool ok, asio::ssl::verify_context&) {
        if (!ok) verified_ = false;
        return true;
      },
      ignored);
  tcp_.expires_after(common_.limits.handshake);
  // While this is set, end() does not close the connection: a client that has finished its part of the handshake would
  // assume that its first request was processed.
  in_handshake_ = true;
  const auto [wrong] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kDone);
  in_handshake_ = false;
  if (!wrong) {
    learn_peer();
    if (speaks_http2(tls_->native_handle())) {
      co_await multiplexed();
    } else {
      co_await requests();
    }
    tcp_.expires_after(kDrainTime);
    (void)co_await tls_->async_shutdown(kDone);
  }
  tcp_.close();
}

asio::awaitable<Session::Received> Session::receive(asio::mutable_buffer room) {
  if (tls_) {
    const auto [wrong, size] = co_await tls_->async_read_some(room, kDone);
    co_return Received{wrong, size};
  }
  const auto [wrong, size] = co_await tcp_.async_read_some(room, kDone);
  co_return Received{wrong, size};
}

asio::awaitable<error_code> Session::send(std::string_view bytes) {
  const asio::const_buffer out(bytes.data(), bytes.size());
  if (tls_) {
    const auto [wrong, size] = co_await asio::async_write(*tls_, out, kDone);
    co_return wrong;
  }
  const auto [wrong, size] = co_await asio::async_write(tcp_, out, kDone);
  co_return wrong;
}

asio::awaitable<void> Session::requests() {
  while (!common_.stopping) {
    if (buffer_.size() == 0) {
      rest();
      tcp_.expires_after(common_.limits.idle);
      const auto some = co_await receive(buffer_.prepare(kPiece));
      if (some.wrong) co_return;
      buffer_.commit(some.size);
    }
    busy_ = true;
    auto got = co_await read();
    if (got.refusal != 0) {
      ++common_.malformed;
      if (co_await write(plain(got.refusal, words_for(got.refusal)), false, false)) co_await discard_body();
      co_return;
    }
    if (got.late) ++common_.malformed;
    if (got.gone) co_return;
    tcp_.expires_never();
    auto reply = co_await answer(got.http);
    const bool head_only = got.http.method == "HEAD";
    if (reply.more && !head_only) {
      co_await keep_sending(std::move(reply));
      co_return;
    }
    const bool keep = got.keep && !common_.draining && !common_.stopping;
    if (!co_await write(reply, keep, head_only) || !keep) co_return;
  }
}

/// Receives until the parser has the head, or with `whole` the complete request.
asio::awaitable<error_code> Session::parse(wire::basic_parser<true>& parser, bool whole) {
  parser.eager(whole);
  bool more = buffer_.size() == 0;
  while (whole ? !parser.is_done() : !parser.is_header_done()) {
    if (more) {
      const auto room = std::min(kPiece, buffer_.max_size() - buffer_.size());
      if (room == 0) co_return wire::error::buffer_overflow;
      const auto some = co_await receive(buffer_.prepare(room));
      if (some.wrong) co_return some.wrong;
      buffer_.commit(some.size);
    }
    error_code wrong;
    buffer_.consume(parser.put(buffer_.data(), wrong));
    more = wrong == wire::error::need_more || buffer_.size() == 0;
    if (wrong && wrong != wire::error::need_more) co_return wrong;
  }
  co_return error_code();
}

asio::awaitable<Session::Got> Session::read() {
  Got got;
  const auto failed = [&got](const error_code& wrong) {
    got.refusal = refusal_for(wrong);
    got.gone = got.refusal == 0;
    got.late = wrong == beast::error::timeout;  // Beast has already closed the connection
  };
  wire::request_parser<wire::string_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(common_.limits.head));
  parser.body_limit(common_.limits.body);
  tcp_.expires_after(common_.limits.head_time);
  if (const auto wrong = co_await parse(parser, false); wrong) {
    failed(wrong);
    co_return got;
  }
  tcp_.expires_after(common_.limits.body_time);
  if (!parser.is_done() && beast::iequals(parser.get()[wire::field::expect], "100-continue")) {
    if (const auto wrong = co_await send("HTTP/1.1 100 Continue\r\n\r\n"); wrong) failed(wrong);
  }
  if (!got.gone) {
    if (const auto wrong = co_await parse(parser, true); wrong) failed(wrong);
  }
  if (got.gone || got.refusal != 0) co_return got;
  auto& message = parser.get();
  const std::string target(message.target().data(), message.target().size());
  const auto mark = target.find('?');
  got.keep = message.keep_alive();
  got.http.method = std::string(message.method_string());
  got.http.path = target.substr(0, mark);
  if (mark != std::string::npos) got.http.query = target.substr(mark + 1);
  got.http.body = std::move(message.body());
  got.http.peer = peer_;
  got.http.token = token_in(message);
  co_return got;
}

asio::awaitable<bool> Session::write(const HttpResponse& reply, bool keep, bool head_only) {
  auto out = head_of(reply, reply.body.size(), keep);
  if (!head_only) out += reply.body;
  tcp_.expires_after(common_.limits.write_time);
  const auto wrong = co_await send(out);
  co_return !wrong;
}

/// Sends what HttpResponse::more returns, until it ends, the client has gone, or the server ends.
asio::awaitable<void> Session::keep_sending(HttpResponse reply) {
  std::string out = head_of(reply, std::nullopt, false);
  if (!reply.body.empty()) out += chunk(reply.body);
  asio::steady_timer timer(executor());
  for (bool open = true; open || !out.empty();) {
    if (!out.empty()) {
      tcp_.expires_after(common_.limits.write_time);
      const auto wrong = co_await send(out);
      tcp_.expires_never();
      if (wrong || !open) co_return;
      out.clear();
    }
    timer.expires_after(kMoreEvery);
    (void)co_await timer.async_wait(kDone);
    std::optional<std::string> more;
    if (!common_.stopping && !common_.draining) {
      const auto ask = [&reply]() -> asio::awaitable<std::optional<std::string>> {
        try {
          co_return reply.more();
        } catch (...) {  // as in guarded()
          co_return std::nullopt;
        }
      };
      more = co_await asio::co_spawn(common_.waiting.get_executor(), ask, asio::use_awaitable);
    }
    open = more.has_value();
    if (!open)
      out = "0\r\n\r\n";
    else if (!more->empty())
      out = chunk(*more);
  }
}

/// Reads and discards for a moment what the client is still sending: closing with unread data would reset the
/// connection, and the client would not receive the refusal.
asio::awaitable<void> Session::discard_body() {
  error_code ignored;
  if (!tls_) tcp_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  tcp_.expires_after(kDrainTime);
  buffer_.clear();
  for (std::size_t drained = 0; drained < kMostDrained;) {
    const auto some = co_await receive(buffer_.prepare(kPiece));
    if (some.wrong) co_return;
    drained += some.size;
  }
}

HttpResponse Session::guarded(const HttpRequest& request) const {
  try {
    return common_.handler(request);
  } catch (...) {  // thrown by a library below the handler: the server continues
    return plain(500, "internal error");
  }
}

asio::awaitable<HttpResponse> Session::answer(const HttpRequest& request) {
  if (!common_.waits || !common_.waits(request)) co_return guarded(request);
  const auto came = std::chrono::steady_clock::now();
  const auto on_a_waiting_thread = [this, &request, came]() -> asio::awaitable<HttpResponse> {
    if (std::chrono::steady_clock::now() - came > common_.limits.queue)
      co_return plain(503, "too many requests wait for the API server");
    co_return guarded(request);
  };
  co_return co_await asio::co_spawn(common_.waiting.get_executor(), on_a_waiting_thread, asio::use_awaitable);
}

asio::awaitable<void> Session::multiplexed() {
  Flow flow(common_.limits, executor());
  flow_ = &flow;
  tcp_.expires_never();
  ++flow.answering;
  asio::co_spawn(executor(), keep_time(flow), asio::detached);
  co_await flush(flow);  // the server's SETTINGS
  std::size_t drained = 0;
  while (!flow.over && (flow.leaving ? drained < kMostDrained : !flow.streams.over())) {
    if (flow.streams.open() == 0) {
      if (common_.stopping && !flow.leaving) co_await leave_flow(flow);
      rest();
    }
    flow.read_by = std::chrono::steady_clock::now() +
                   (flow.streams.receiving() ? common_.limits.body_time : common_.limits.idle);
    const auto some = co_await receive(buffer_.prepare(kRecord));
    flow.read_by = Flow::Time::max();
    if (some.wrong) break;
    if (flow.hung_up) {
      drained += some.size;
      continue;
    }
    busy_ = true;
    buffer_.commit(some.size);
    const auto now = std::chrono::steady_clock::now();
    auto requests = flow.streams.feed({static_cast<const char*>(buffer_.cdata().data()), some.size}, now);
    buffer_.consume(some.size);
    flow.streams.drop_slow(now - common_.limits.body_time);
    common_.malformed += flow.streams.take_malformed();
    if (requests) {
      co_await take(flow, std::move(*requests));
      if (common_.draining && !flow.notified) co_await drain_flow(flow);  // the connection began after drain()
    } else {
      ++common_.malformed;
      co_await flush(flow);
      flow.over = true;
    }
  }
  flow.over = true;
  flow.clock.cancel();
  flow.patience.cancel();
  while (flow.answering > 0) (void)co_await flow.quiet.async_wait(kDone);
  flow_ = nullptr;
}

asio::awaitable<void> Session::take(Flow& flow, std::vector<Streams::Request> requests) {
  for (auto& request : requests) {
    request.http.peer = peer_;
    if (common_.waits && common_.waits(request.http)) {
      ++flow.answering;
      asio::co_spawn(executor(), later(flow, std::move(request)), asio::detached);
    } else {
      flow.streams.reply(request.stream, guarded(request.http));
    }
  }
  co_await flush(flow);
}

/// Answers a request that waits. Other requests of the connection are read and answered meanwhile.
asio::awaitable<void> Session::later(Flow& flow, Streams::Request request) {
  auto reply = co_await answer(request.http);
  flow.streams.reply(request.stream, std::move(reply));
  co_await flush(flow);
  if (flow.streams.open() == 0) {
    rest();
    if (common_.stopping) co_await leave_flow(flow);
  }
  done_with(flow);
}

void Session::done_with(Flow& flow) {
  if (--flow.answering == 0) flow.quiet.cancel();
}

/// Closes the connection when a read or write misses its deadline. A timer for each read and write would cost as much
/// as the transfer itself. This one checks periodically, so that a late client is cut off at most a quarter of the
/// limit late.
asio::awaitable<void> Session::keep_time(Flow& flow) {
  const auto& limits = common_.limits;
  const auto pause =
      std::max(std::min({limits.body_time, limits.idle, limits.write_time}) / 4, std::chrono::milliseconds(1));
  while (!flow.over) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= std::min(flow.read_by, flow.written_by)) {
      if (now >= flow.read_by && flow.streams.receiving()) ++common_.malformed;
      flow.over = true;
      tcp_.close();  // pending reads and writes then fail
      break;
    }
    flow.clock.expires_at(std::min({flow.read_by, flow.written_by, now + pause}));
    (void)co_await flow.clock.async_wait(kDone);
  }
  done_with(flow);
}

/// Writes the pending output. One coroutine writes at a time, including the output of the others.
asio::awaitable<void> Session::flush(Flow& flow) {
  if (std::exchange(flow.writing, true)) co_return;
  while (!flow.over) {
    const auto out = flow.streams.output();
    if (out.empty()) break;
    flow.written_by = std::chrono::steady_clock::now() + common_.limits.write_time;
    const auto wrong = co_await send(out);
    flow.written_by = Flow::Time::max();
    if (!wrong) continue;
    flow.over = true;
    tcp_.close();  // the pending read then fails
  }
  flow.writing = false;
  if (flow.leaving && !flow.over && flow.streams.open() == 0) hang_up(flow);
}

asio::awaitable<void> Session::drain_flow(Flow& flow) {
  ++flow.answering;
  if (!std::exchange(flow.notified, true)) flow.streams.notice();
  co_await flush(flow);
  done_with(flow);
}

/// Tells the client that the server accepts no more requests. The received ones are answered; flush() then closes the
/// server's side.
asio::awaitable<void> Session::leave_flow(Flow& flow) {
  ++flow.answering;
  if (!std::exchange(flow.leaving, true)) flow.streams.leave();
  co_await flush(flow);
  done_with(flow);
}

/// Ends the server's side after the last answer. A close would reset the connection if the client has sent more
/// meanwhile, and the client would lose the GOAWAY that tells it to retry those requests elsewhere. Therefore the
/// client closes.
void Session::hang_up(Flow& flow) {
  if (std::exchange(flow.hung_up, true)) return;
  error_code ignored;
  tcp_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  ++flow.answering;
  asio::co_spawn(executor(), linger(flow), asio::detached);
}

/// Closes the connection if the client does not.
asio::awaitable<void> Session::linger(Flow& flow) {
  flow.patience.expires_after(kDrainTime);
  if (!flow.over) (void)co_await flow.patience.async_wait(kDone);
  if (!flow.over) tcp_.close();
  done_with(flow);
}

}  // namespace carve::http
