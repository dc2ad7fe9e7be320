#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "adapter/kube/access.h"
#include "base/result.h"

namespace carve::kube {

/// The authorities we trust and the certificate we show, ready for handshakes. Shared by all connections of
/// one generation of the credentials.
class TlsIdentity {
 public:
  virtual ~TlsIdentity() = default;
};
///   errors  kInvalidArgument: which of authority, certificate, key cannot be used
[[nodiscard]] Result<std::shared_ptr<TlsIdentity>> make_identity(const Credentials& credentials);

struct HttpRequest {
  std::string method;
  std::string target;
  std::string content_type;
  std::string body;
  std::string token;  // a secret
};

struct HttpResponse {
  int status = 0;
  std::optional<std::chrono::seconds> retry_after;
  bool keep_alive = false;
  std::string body;
};

/// Until when a call may wait, and what ends it sooner.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

/// One TLS connection to the API server, HTTP/1.1. Not safe for two threads at once. After an error only
/// its end is left.
///   errors  kUnavailable: refused, cut, not HTTP, a certificate that does not verify (says why);
///           kDeadlineExceeded; kCancelled: `stop`; kResourceExhausted: more than was allowed
class Channel {
 public:
  virtual ~Channel() = default;
  /// Connects, shakes hands, verifies the server's name or address against its certificate.
  [[nodiscard]] static Result<std::unique_ptr<Channel>> connect(const Endpoint& endpoint,
                                                                std::shared_ptr<TlsIdentity> identity,
                                                                const Patience& patience);
  /// Sends the request and reads the head of the answer, and the body when it is not a 200 to be streamed.
  [[nodiscard]] virtual Result<HttpResponse> exchange(const HttpRequest& request, bool stream,
                                                      std::size_t largest, const Patience& patience) = 0;
  /// Of a streamed answer: what has come since, at least one byte; "" at its end.
  [[nodiscard]] virtual Result<std::string> read_some(const Patience& patience) = 0;
  /// Nothing unexpected has come and nobody has hung up: it can be used again.
  [[nodiscard]] virtual bool is_quiet() = 0;
  /// Whether any byte of the last request's answer came.
  [[nodiscard]] virtual bool answered() const = 0;
};

}  // namespace carve::kube
