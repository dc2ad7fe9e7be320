#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "adapter/http/server.h"
#include "base/result.h"

namespace carve::http {

using TlsContext = boost::asio::ssl::context;

/// Ready for handshakes; shared by all connections that began with this identity.
///   errors  kInvalidArgument: which of certificate, key, authorities cannot be used
[[nodiscard]] Result<std::shared_ptr<TlsContext>> make_context(const Identity& identity);

}  // namespace carve::http
