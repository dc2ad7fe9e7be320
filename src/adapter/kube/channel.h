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

/// The trusted authorities and the client certificate, prepared for handshakes. Shared by all connections of one
/// generation of the credentials.
class TlsIdentity {
 public:
  virtual ~TlsIdentity() = default;
};
///   errors  kInvalidArgument: the authority, the certificate or the key cannot be used (the text says which)
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

/// The deadline of a call, and the token that ends it sooner.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

/// One TLS connection to the API server, HTTP/1.1. Not safe for concurrent use. After an error it can only be
/// destroyed.
///   errors  kUnavailable: refused, broken, not HTTP, a certificate that does not verify (the text says why);
///           kDeadlineExceeded; kCancelled: `stop`; kResourceExhausted: the answer is larger than allowed
class Channel {
 public:
  virtual ~Channel() = default;
  /// Connects, performs the TLS handshake and verifies the server's name or address against its certificate.
  [[nodiscard]] static Result<std::unique_ptr<Channel>> connect(const Endpoint& endpoint,
                                                                std::shared_ptr<TlsIdentity> identity,
                                                                const Patience& patience);
  /// Sends the request and reads the answer. With `stream` and status 200, reads only the head; read_some() then reads
  /// the body. `largest` limits the size of the body otherwise.
  [[nodiscard]] virtual Result<HttpResponse> exchange(const HttpRequest& request, bool stream,
                                                      std::size_t largest, const Patience& patience) = 0;
  /// The next bytes of a streamed answer, at least one; "" at its end.
  [[nodiscard]] virtual Result<std::string> read_some(const Patience& patience) = 0;
  /// True when no unexpected data has arrived and the peer has not closed the connection, so that it can be used again.
  [[nodiscard]] virtual bool is_quiet() = 0;
  /// True when the head of the answer to the last request has arrived.
  [[nodiscard]] virtual bool answered() const = 0;
};

}  // namespace carve::kube
