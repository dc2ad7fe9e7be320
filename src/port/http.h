#pragma once

#include <functional>
#include <string>

namespace carve {

/// One HTTP request, as an application sees it.
struct HttpRequest {
  std::string method;  // "GET", "POST", in upper case
  std::string path;    // as received, up to the "?": "/v1/cluster"; not decoded, because no route needs it
  std::string query;   // as received, without the "?"
  std::string body;
  std::string peer;  // CN of the client certificate if it was verified against Carve's CA, else ""
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
};

/// The application's handler. Called on any thread, concurrently. It may block only where its route must (a bind waits
/// for the API server), because a blocked call occupies a thread of the server.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

}  // namespace carve
