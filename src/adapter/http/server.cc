#include "adapter/http/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <deque>
#include <list>
#include <utility>

#include "adapter/http/session.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/thread_name.h"

namespace carve::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

/// ":8443", "127.0.0.1:0", "[::1]:80".
Result<tcp::endpoint> parse_listen(const std::string& listen) {
  const auto wrong = [&listen](const std::string& why) {
    return fail(Code::kInvalidArgument, "\"" + listen.substr(0, 64) + "\": " + why +
                                            "; legal are \":PORT\", \"ADDRESS:PORT\" and \"[ADDRESS]:PORT\"");
  };
  const auto colon = listen.rfind(':');
  if (colon == std::string::npos) return wrong("it has no port");
  std::uint16_t port = 0;
  const char* end = listen.data() + listen.size();
  const auto [at, failed] = std::from_chars(listen.data() + colon + 1, end, port);
  if (failed != std::errc() || at != end) return wrong("the port is not a number from 0 to 65535");
  std::string host = listen.substr(0, colon);
  if (host.empty()) return tcp::endpoint(asio::ip::address_v6::any(), port);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) return wrong("the address is not an IP address");
  return tcp::endpoint(address, port);
}

/// "Every address" is one socket for IPv6 and IPv4; if the kernel has no IPv6, a socket for IPv4.
Result<void> listen_on(tcp::acceptor& acceptor, tcp::endpoint where, const std::string& listen) {
  error_code wrong;
  acceptor.open(where.protocol(), wrong);
  if (wrong && where.address() == asio::ip::address_v6::any()) {
    where = tcp::endpoint(asio::ip::address_v4::any(), where.port());
    acceptor.open(where.protocol(), wrong);
  }
  if (!wrong) acceptor.set_option(asio::socket_base::reuse_address(true), wrong);
  if (!wrong && where.address() == asio::ip::address_v6::any()) acceptor.set_option(asio::ip::v6_only(false), wrong);
  if (!wrong) acceptor.bind(where, wrong);
  if (!wrong) acceptor.listen(asio::socket_base::max_listen_connections, wrong);
  if (!wrong) return {};
  const auto code = wrong == asio::error::access_denied ? Code::kPermissionDenied : Code::kUnavailable;
  return fail(code, "listen on " + listen + ": " + wrong.message());
}

constexpr std::chrono::milliseconds kNoDescriptors{100};  // until accept() is retried

/// A thread with its own event loop. A connection stays on the thread where it begins: if threads shared one loop, each
/// step of a request would wake another thread, about a dozen futex calls and four context switches for a trivial call.
struct Loop {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> open = asio::make_work_guard(io);
  Thread thread;
};

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& options, HttpHandler handler, Log& events)
      : common(options, std::move(handler)),
        log(events),
        loops(std::max(1U, options.limits.threads)),
        acceptor(loops.front().io) {}

  asio::awaitable<void> accept();
  void serve(tcp::socket socket);
  bool make_room() REQUIRES(mutex);
  void leave(std::list<std::shared_ptr<Session>>::iterator place);
  void end_all(bool busy_too);
  void drain_all();

  Common common;
  Log& log;
  std::deque<Loop> loops;
  tcp::acceptor acceptor;
  std::size_t next = 0;  // the loop of the next connection
  std::uint16_t port = 0;
  mutable Mutex mutex;
  Condition left;
  std::list<std::shared_ptr<Session>> sessions GUARDED_BY(mutex);
  std::shared_ptr<TlsContext> context GUARDED_BY(mutex);
  ServerCounts counts GUARDED_BY(mutex);
  bool stopped GUARDED_BY(mutex) = false;
};

asio::awaitable<void> Server::Impl::accept() {
  constexpr auto kDone = asio::as_tuple(asio::use_awaitable);
  while (!common.stopping) {
    const asio::any_io_executor executor = loops[next].io.get_executor();
    auto [wrong, socket] = co_await acceptor.async_accept(executor, kDone);
    if (common.stopping) co_return;
    if (!wrong) {
      next = (next + 1) % loops.size();
      serve(std::move(socket));
      continue;
    }
    if (wrong == asio::error::connection_aborted) continue;
    log.warn("a connection cannot be accepted", {{"error", wrong.message()}});
    asio::steady_timer timer(acceptor.get_executor(), kNoDescriptors);
    (void)co_await timer.async_wait(kDone);
  }
}

/// Asks one idle connection to end: one of an unknown client first, else the one that has been idle longest. False: all
/// connections are busy.
bool Server::Impl::make_room() {
  std::shared_ptr<Session> found;
  const auto rather = [](const Session& a, const Session& b) {
    return a.known() != b.known() ? !a.known() : a.idle_since() < b.idle_since();
  };
  for (const auto& one : sessions) {
    if (!one->busy() && !one->leaving && (found == nullptr || rather(*one, *found))) found = one;
  }
  if (found == nullptr) return false;
  found->leaving = true;
  asio::post(found->executor(), [found] { found->end(false); });
  ++counts.evicted;
  return true;
}

void Server::Impl::serve(tcp::socket socket) {
  const MutexLock lock(mutex);
  ++counts.accepted;
  // Connections that were asked to end still count, so that a flood opens at most twice the limit.
  if (sessions.size() >= 2 * common.limits.connections ||
      (sessions.size() >= common.limits.connections && !make_room())) {
    ++counts.refused;
    return;
  }
  const auto session = std::make_shared<Session>(common, std::move(socket), context);
  const auto place = sessions.insert(sessions.end(), session);
  asio::co_spawn(session->executor(), session->run(),
                 [this, session, place](const std::exception_ptr&) { leave(place); });
}

void Server::Impl::leave(std::list<std::shared_ptr<Session>>::iterator place) {
  const MutexLock lock(mutex);
  sessions.erase(place);
  left.notify_all();
}

void Server::Impl::end_all(bool busy_too) {
  const MutexLock lock(mutex);
  for (const auto& session : sessions) {
    asio::post(session->executor(), [session, busy_too] { session->end(busy_too); });
  }
}

void Server::Impl::drain_all() {
  const MutexLock lock(mutex);
  for (const auto& session : sessions) {
    asio::post(session->executor(), [session] { session->drain(); });
  }
}

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options, HttpHandler handler, Log& log) {
  CARVE_TRY(const auto where, parse_listen(options.listen));
  std::unique_ptr<Impl> impl;
  {
    const NamesThreads waiting("http-wait");
    impl = std::make_unique<Impl>(options, std::move(handler), log);
  }
  if (options.identity) {
    CARVE_TRY(auto context, make_context(*options.identity));
    const MutexLock lock(impl->mutex);
    impl->context = std::move(context);
  }
  CARVE_TRY_VOID(listen_on(impl->acceptor, where, options.listen));
  error_code wrong;
  impl->port = impl->acceptor.local_endpoint(wrong).port();
  asio::co_spawn(impl->acceptor.get_executor(), impl->accept(), asio::detached);
  for (auto& loop : impl->loops) loop.thread = Thread("http", [&loop] { loop.io.run(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

std::uint16_t Server::port() const { return impl_->port; }

Result<void> Server::renew(const Identity& identity) {
  CARVE_TRY(auto context, make_context(identity));
  const MutexLock lock(impl_->mutex);
  if (!impl_->context) return fail(Code::kFailedPrecondition, "this port speaks plain HTTP");
  impl_->context = std::move(context);
  return {};
}

void Server::drain() {
  impl_->common.draining = true;
  impl_->drain_all();
}

void Server::stop(std::chrono::milliseconds grace) {
  {
    const MutexLock lock(impl_->mutex);
    if (std::exchange(impl_->stopped, true)) return;
  }
  impl_->common.stopping = true;
  asio::post(impl_->acceptor.get_executor(), [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
  });
  impl_->end_all(false);
  {
    const auto end = std::chrono::steady_clock::now() + grace;
    MutexLock lock(impl_->mutex);
    while (!impl_->sessions.empty() && impl_->left.wait_until(lock, end) == std::cv_status::no_timeout) {
    }
  }
  impl_->end_all(true);
  impl_->common.waiting.join();
  for (auto& loop : impl_->loops) loop.open.reset();
  for (auto& loop : impl_->loops) loop.thread.join();  // it returns when its last connection has ended
}

ServerCounts Server::counts() const {
  const MutexLock lock(impl_->mutex);
  auto counts = impl_->counts;
  counts.open = impl_->sessions.size();
  for (const auto& one : impl_->sessions) counts.idle += one->busy() ? 0 : 1;
  counts.malformed = impl_->common.malformed;
  return counts;
}

}  // namespace carve::http
