#include "adapter/kube/testing/tls_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace carve::kube::testing {
namespace {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Freed<SSL, SSL_free>>;

template <class Write>
std::string pem(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return text;
}

void add(X509* certificate, int what, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
  if (extension == nullptr) throw std::runtime_error("extension " + value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

class SslPeer final : public TlsServer::Peer {
 public:
  SslPeer(SSL* ssl, int socket) : ssl_(ssl), socket_(socket) {}

  std::optional<std::string> request() override {
    std::size_t end = std::string::npos;
    while ((end = held_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return std::nullopt;
    }
    std::size_t length = 0;
    if (const auto at = held_.find("Content-Length: "); at < end) length = std::strtoul(&held_[at + 16], nullptr, 10);
    while (held_.size() < end + 4 + length) {
      if (!more()) return std::nullopt;
    }
    auto whole = held_.substr(0, end + 4 + length);
    held_.erase(0, whole.size());
    return whole;
  }
  void send(std::string_view bytes) override {
    if (!bytes.empty()) (void)SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  void stall() override {
    while (more()) held_.clear();
  }
  void cut() override { ::shutdown(socket_, SHUT_RDWR); }

 private:
  bool more() {
    char piece[4096];
    const int got = SSL_read(ssl_, piece, sizeof piece);
    if (got > 0) held_.append(piece, static_cast<std::size_t>(got));
    return got > 0;
  }
  SSL* ssl_;
  int socket_;
  std::string held_;
};

}  // namespace

MadeIdentity make_self_signed(const std::string& names) {
  const Key key(EVP_EC_gen("P-256"));
  const Cert certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  add(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  add(certificate.get(), NID_subject_alt_name, names);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  return {.certificate = pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate.get()); }),
          .key = pem([&](BIO* bio) {
            PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

void TlsServer::Peer::answer(int status, std::string_view body, std::string_view extra) {
  send(fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", status,
                   body.size(), extra, body));
}

void TlsServer::Peer::begin_chunks() { send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"); }

void TlsServer::Peer::chunk(std::string_view bytes) { send(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes)); }

TlsServer::TlsServer(MadeIdentity identity, Script script)
    : identity_(std::move(identity)), script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_.get(), 16) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port on the loopback");
  }
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { serve(); });
}

TlsServer::~TlsServer() {
  ending_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  accepting_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
  }
  for (auto& one : talks_) one.join();
}

void TlsServer::serve() {
  while (!ending_) {
    Fd socket(::accept(listener_.get(), nullptr, nullptr));
    if (!socket) return;
    const std::lock_guard lock(mutex_);
    open_.push_back(socket.get());
    const int number = connections_++;
    talks_.emplace_back([this, number, one = std::move(socket)]() mutable { talk(std::move(one), number); });
  }
}

void TlsServer::talk(Fd socket, int number) {
  const Context context(SSL_CTX_new(TLS_server_method()));
  BIO* bio = BIO_new_mem_buf(identity_.certificate.data(), -1);
  const Cert certificate(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr));
  BIO_free(bio);
  bio = BIO_new_mem_buf(identity_.key.data(), -1);
  const Key key(PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr));
  BIO_free(bio);
  SSL_CTX_use_certificate(context.get(), certificate.get());
  SSL_CTX_use_PrivateKey(context.get(), key.get());
  const Session ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), socket.get());
  if (SSL_accept(ssl.get()) == 1) {
    SslPeer peer(ssl.get(), socket.get());
    script_(peer, number);
    SSL_shutdown(ssl.get());
  }
  const std::lock_guard lock(mutex_);
  open_.remove(socket.get());
  socket.reset();
}

}  // namespace carve::kube::testing
