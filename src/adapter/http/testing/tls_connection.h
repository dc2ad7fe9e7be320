#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>
#include <string>
#include <utility>

#include "adapter/http/testing/h2_client.h"
#include "adapter/tls/issuer.h"
#include "base/fd.h"

namespace carve::http::testing {

/// A TLS client that offers both protocols, like Go's.
class TlsConnection {
 public:
  TlsConnection(std::uint16_t port, const char* name, const tls::Pair& shown)
      : TlsConnection(connected(port), name, shown) {}
  /// Starts TLS on this socket.
  TlsConnection(Fd connected, const char* name, const tls::Pair& shown)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free), socket_(std::move(connected)) {
    static constexpr unsigned char kBoth[] = "\x02h2\x08http/1.1";
    SSL_CTX_set_alpn_protos(context_.get(), kBoth, sizeof kBoth - 1);
    show(shown);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_.get());
    std::string sent = name;
    SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, sent.data());
    EXPECT_EQ(SSL_connect(ssl_.get()), 1);
  }
  static Fd connected(std::uint16_t port) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{20, 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  std::string protocol() const {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &chosen, &size);
    return {reinterpret_cast<const char*>(chosen), size};
  }
  /// Sends the client's output and reads until `enough`; false: the server closed the connection or was silent too
  /// long.
  template <class Enough>
  bool talk(H2Client& client, Enough enough) {
    while (true) {
      const auto out = client.output();
      if (!out.empty() && SSL_write(ssl_.get(), out.data(), static_cast<int>(out.size())) <= 0) return false;
      if (enough()) return true;
      char in[16384];
      const int size = SSL_read(ssl_.get(), in, sizeof in);
      if (size <= 0 || !client.feed({in, static_cast<std::size_t>(size)})) return enough();
    }
  }

 private:
  void show(const tls::Pair& pair) {
    const auto memory = [](const std::string& pem) {
      return std::unique_ptr<BIO, int (*)(BIO*)>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    };
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_bio_X509(memory(pair.certificate).get(), nullptr, nullptr, nullptr), X509_free);
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
        PEM_read_bio_PrivateKey(memory(pair.key).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key.get()), 1);
  }

  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  Fd socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, SSL_free};
};

}  // namespace carve::http::testing
