#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "adapter/http/server.h"
#include "base/result.h"

namespace carve::http {

using TlsContext = boost::asio::ssl::context;

/// A TLS context for handshakes, shared by all connections that begin with this identity.
///   errors  kInvalidArgument: the certificate, the key or the authorities cannot be used (the text says which)
[[nodiscard]] Result<std::shared_ptr<TlsContext>> make_context(const Identity& identity);

}  // namespace carve::http
