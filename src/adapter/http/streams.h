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

/// The server's side of one HTTP/2 connection, without I/O: bytes in, requests out; replies in, bytes out. It buffers
/// at most `limits.body` bytes in total for requests that are not complete. Not thread-safe.
class Streams {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::uint32_t kMostAtOnce =
      100;  // concurrent requests; a client with more waits or opens another connection

  explicit Streams(const Limits& limits);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  struct Request {
    std::int32_t stream = 0;
    HttpRequest http;  // without a peer
  };
  /// Takes the client's bytes and returns the requests that are now complete. A request that is too large is answered
  /// here.
  ///   errors  kInvalidArgument: the client does not speak HTTP/2, or floods; output() has the last frames for it
  [[nodiscard]] Result<std::vector<Request>> feed(std::string_view bytes, Time now);
  /// Answers a request. Does nothing if the client has cancelled the request meanwhile.
  void reply(std::int32_t stream, HttpResponse reply);
  /// The next bytes to send, about 64 KiB at most; "": none at the moment.
  [[nodiscard]] std::string output();

  /// Cancels the incomplete requests that began before `since` and returns their number.
  std::size_t drop_slow(Time since);
  /// Asks the client to send its next requests elsewhere. Requests that are already under way are accepted.
  void notice();
  /// Accepts no more requests; received ones are answered. The GOAWAY names the last accepted request, so that the
  /// client knows which others it may retry.
  void leave();
  /// The number of requests that have begun and are not completely answered.
  [[nodiscard]] std::size_t open() const { return streams_.size(); }
  /// True while one of them is incomplete.
  [[nodiscard]] bool receiving() const { return receiving_ != 0; }
  /// True when neither side will send anything more.
  [[nodiscard]] bool over() const;
  /// The number of requests that were refused for their size or cancelled since the previous call.
  [[nodiscard]] std::size_t take_malformed();

 private:
  struct Stream {
    HttpRequest http;
    std::size_t head = 0;  // bytes of its header fields
    bool complete = false;
    bool refused = false;
    bool head_only = false;
    Time since{};
    std::string answer;  // the unsent part begins at `sent`
    std::size_t sent = 0;
  };
  struct Callbacks;  // for nghttp2

  Stream* find(std::int32_t id);
  void refuse(std::int32_t id, Stream* stream, int status, const char* why);
  void finished(std::int32_t id, Stream* stream);
  void forget_body(Stream* stream);
  void closed(std::int32_t id);

  const Limits limits_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Stream> streams_;
  std::vector<Request> ready_;
  std::size_t receiving_ = 0;  // streams with incomplete requests
  std::size_t held_ = 0;       // bytes of their bodies
  std::size_t malformed_ = 0;
  Time now_{};
};

}  // namespace carve::http
