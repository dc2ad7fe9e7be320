#include "adapter/http/identity.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <string>

namespace carve::http {
namespace {

using boost::system::error_code;

/// A context and the data of its callback.
struct Kept {
  TlsContext context{TlsContext::tls_server};
  std::string multiplexed;
};

/// Selects one of the protocols that the client offers. If the server supports none of them, the handshake continues
/// without ALPN.
int choose_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned offered_size, void* kept) {
  static constexpr unsigned char kOurs[] = "\x02h2\x08http/1.1";
  const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  const auto& multiplexed = static_cast<const Kept*>(kept)->multiplexed;
  const unsigned skipped = name != nullptr && !multiplexed.empty() && multiplexed == name ? 0 : 3;
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kOurs + skipped, sizeof kOurs - 1 - skipped, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> make_context(const Identity& identity) {
  const auto kept = std::make_shared<Kept>();
  kept->multiplexed = identity.multiplexed;
  const std::shared_ptr<TlsContext> context(kept, &kept->context);
  const auto wrong_in = [](const char* what, const error_code& wrong) {
    ERR_clear_error();
    return fail(Code::kInvalidArgument, std::string(what) + ": expected PEM: " + wrong.message());
  };
  error_code wrong;
  context->use_certificate_chain(boost::asio::buffer(identity.certificate), wrong);
  if (wrong) return wrong_in("certificate", wrong);
  context->use_private_key(boost::asio::buffer(identity.key), TlsContext::pem, wrong);
  if (wrong) return wrong_in("key", wrong);
  SSL_CTX* raw = context->native_handle();
  if (SSL_CTX_check_private_key(raw) != 1) {
    ERR_clear_error();
    return fail(Code::kInvalidArgument, "key: it does not match the certificate");
  }
  if (!identity.authorities.empty()) {
    context->add_certificate_authority(boost::asio::buffer(identity.authorities), wrong);
    if (wrong) return wrong_in("authorities", wrong);
    // The server requests a client certificate. A client without one, or with one of another authority, continues as an
    // unknown client (session.cc).
    context->set_verify_mode(boost::asio::ssl::verify_peer, wrong);
  }
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // saves 32 KiB per idle connection
  // TLS sessions are not resumed: every handshake verifies the client against the current authorities.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, kept.get());
  return context;
}

}  // namespace carve::http
