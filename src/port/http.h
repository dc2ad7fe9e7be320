#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace carve {

/// One HTTP request, as an application sees it.
struct HttpRequest {
  std::string method;  // "GET", "POST", in upper case
  std::string path;    // as received, up to the "?": "/v1/cluster"; not decoded, because no route needs it
  std::string query;   // as received, without the "?"
  std::string body;
  std::string peer;  // CN of the client certificate if it was verified against Carve's CA, else ""
  // A secret: from "Authorization: Bearer …", else from "X-Carve-Token: …", which the API server's proxy leaves in the
  // request; "" if there is neither.
  std::string token = {};
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> fields = {};  // more header fields
  /// If set, the response does not end with `body`: `more` is called four times a second, on a thread for requests that
  /// wait, and its text is sent; nullopt ends the response. HTTP/1.1 only. A client that has gone is noticed when text
  /// is sent, so `more` must return some every few seconds.
  std::function<std::optional<std::string>()> more = {};
};

/// The application's handler. Called on any thread, concurrently. It may block only where its route must (a bind waits
/// for the API server), because a blocked call occupies a thread of the server.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

}  // namespace carve
