#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/fd.h"

namespace carve::kube::testing {

/// A key and the certificate it has signed for itself.
struct MadeIdentity {
  std::string certificate;  // PEM
  std::string key;          // PEM
};
/// `names` as in a certificate: "DNS:localhost,IP:127.0.0.1".
[[nodiscard]] MadeIdentity make_self_signed(const std::string& names);

/// A server over TLS on a free port of 127.0.0.1 that plays a script, each connection on its own thread.
class TlsServer {
 public:
  class Peer {
   public:
    virtual ~Peer() = default;
    /// The next request, its head and its body; none when the client has hung up.
    virtual std::optional<std::string> request() = 0;
    virtual void send(std::string_view bytes) = 0;
    /// An answer with a length; `extra` are more header lines, each with its end.
    void answer(int status, std::string_view body, std::string_view extra = "");
    /// The head of a chunked answer, then its pieces; `end_chunks` ends it.
    void begin_chunks();
    void chunk(std::string_view bytes);
    void end_chunks() { send("0\r\n\r\n"); }
    /// Says nothing until the client hangs up or the server goes.
    virtual void stall() = 0;
    /// Ends the connection in the middle, without a word of TLS.
    virtual void cut() = 0;
  };
  using Script = std::function<void(Peer&, int connection)>;

  TlsServer(MadeIdentity identity, Script script);
  ~TlsServer();
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  void serve();
  void talk(Fd socket, int number);

  MadeIdentity identity_;
  Script script_;
  Fd listener_;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::list<int> open_;  // sockets to shut down at the end
  std::list<std::thread> talks_;
  std::thread accepting_;
};

}  // namespace carve::kube::testing
