#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"

namespace carve::http::testing {

/// A client that is only a socket. Every wait ends after ten seconds.
class PlainClient {
 public:
  explicit PlainClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const timeval limit{10, 0};
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    connected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  [[nodiscard]] bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void half_close() { ::shutdown(socket_.get(), SHUT_WR); }
  /// Resets the connection.
  void reset() {
    const linger now{1, 0};
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    socket_.reset();
  }
  /// Reads one answer with a Content-Length, head and body; "" when the server has closed the connection. `to_head`:
  /// the answer to a HEAD request, which has no body.
  std::string answer(bool to_head = false) {
    std::size_t end = std::string::npos;
    while ((end = held_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return std::exchange(held_, {});
    }
    std::size_t length = 0;
    if (const auto at = held_.find("Content-Length: "); at < end && !to_head)
      length = std::stoul(held_.substr(at + 16));
    while (held_.size() < end + 4 + length) {
      if (!more()) return std::exchange(held_, {});
    }
    auto whole = held_.substr(0, end + 4 + length);
    held_.erase(0, whole.size());
    return whole;
  }
  /// True when the server has closed the connection.
  bool over() {
    char byte = 0;
    return held_.empty() && ::recv(socket_.get(), &byte, 1, 0) == 0;
  }

 private:
  bool more() {
    char piece[65536];
    const auto got = ::recv(socket_.get(), piece, sizeof piece, 0);
    if (got > 0) held_.append(piece, static_cast<std::size_t>(got));
    return got > 0;
  }
  Fd socket_;
  bool connected_ = false;
  std::string held_;
};

inline std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"; }
inline std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace carve::http::testing
