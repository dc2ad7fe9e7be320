#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/http/server.h"
#include "base/result.h"
#include "port/http.h"

struct nghttp2_session;

namespace carve::http {

/// The server's side of one HTTP/2 connection, without I/O: bytes in, requests out; replies in, bytes out. Of what it
/// keeps for a client that sends and does not finish, `limits.body` bytes is the most altogether. Not thread-safe.
class Streams {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::uint32_t kMostAtOnce = 100;  // requests; a client that has more waits, or connects again

  explicit Streams(const Limits& limits);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  struct Request {
    std::int32_t stream = 0;
    HttpRequest http;  // without a peer
  };
  /// What the client sent; the requests that are complete by it. One that is too large is answered here.
  ///   errors  kInvalidArgument: it speaks no HTTP/2, or floods; output() has the last words to it
  [[nodiscard]] Result<std::vector<Request>> feed(std::string_view bytes, Time now);
  /// Nothing happens when the client has given the request up meanwhile.
  void reply(std::int32_t stream, HttpResponse reply);
  /// What is to be sent next, some 64 KiB at most; "": nothing just now.
  [[nodiscard]] std::string output();

  /// Gives up requests that have been coming in since before `since`; how many.
  std::size_t drop_slow(Time since);
  /// The client is asked to bring its next requests elsewhere. Those on their way are taken nevertheless.
  void notice();
  /// No more requests are taken; those that have come are answered. The client is told which these are, and knows that
  /// it may ask for the others again.
  void leave();
  /// Requests that have begun and are not answered to the end.
  [[nodiscard]] std::size_t open() const { return streams_.size(); }
  /// Whether some of them are still coming in.
  [[nodiscard]] bool receiving() const { return receiving_ != 0; }
  /// Both sides have said their last word: nothing more can come of this connection.
  [[nodiscard]] bool over() const;
  /// Requests that were refused for their size, or given up, since the last time this was asked.
  [[nodiscard]] std::size_t take_malformed();

 private:
  struct Stream {
    HttpRequest http;
    std::size_t head = 0;  // bytes of its fields
    bool complete = false;
    bool refused = false;
    bool head_only = false;
    Time since{};
    std::string answer;     // what is left of it begins at `sent`
    std::size_t sent = 0;
  };
  struct Callbacks;  // nghttp2's

  Stream* find(std::int32_t id);
  void refuse(std::int32_t id, Stream* stream, int status, const char* why);
  void finished(std::int32_t id, Stream* stream);
  void forget_body(Stream* stream);
  void closed(std::int32_t id);

  const Limits limits_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Stream> streams_;
  std::vector<Request> ready_;
  std::size_t receiving_ = 0;  // streams whose requests are not complete
  std::size_t held_ = 0;       // bytes of their bodies
  std::size_t malformed_ = 0;
  Time now_{};
};

}  // namespace carve::http
