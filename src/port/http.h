#pragma once

#include <functional>
#include <string>

namespace carve {

/// One request over HTTP, as an application sees it.
struct HttpRequest {
  std::string method;  // "GET", "POST", in capitals
  std::string path;    // as it came, up to the "?": "/v1/cluster"; nothing is decoded, no route needs it
  std::string query;   // as it came, without the "?"
  std::string body;
  std::string peer;  // CN of the client's certificate when it was verified against our authority, else ""
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
};

/// What an application answers. Called on any thread, on several at once; it may block only where its route must
/// (a bind waits for the API server), since a blocked one keeps a thread of the server.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

}  // namespace carve
