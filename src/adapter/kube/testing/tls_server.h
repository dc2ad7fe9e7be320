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

/// A key and its self-signed certificate.
struct MadeIdentity {
  std::string certificate;  // PEM
  std::string key;          // PEM
};
/// `names` in the format of a certificate: "DNS:localhost,IP:127.0.0.1".
[[nodiscard]] MadeIdentity make_self_signed(const std::string& names);

/// A TLS server on a free port of 127.0.0.1 that executes a script, each connection on its own thread.
class TlsServer {
 public:
  class Peer {
   public:
    virtual ~Peer() = default;
    /// The next request, head and body; nullopt: the client has closed the connection.
    virtual std::optional<std::string> request() = 0;
    virtual void send(std::string_view bytes) = 0;
    /// Sends an answer with a Content-Length; `extra` has more header lines, each with its line end.
    void answer(int status, std::string_view body, std::string_view extra = "");
    /// Sends the head of a chunked answer; chunk() sends its pieces and end_chunks() ends it.
    void begin_chunks();
    void chunk(std::string_view bytes);
    void end_chunks() { send("0\r\n\r\n"); }
    /// Sends nothing until the client closes the connection or the server ends.
    virtual void stall() = 0;
    /// Breaks the connection without a TLS shutdown.
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
