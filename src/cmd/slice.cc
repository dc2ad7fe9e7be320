#include <cstdio>

#include "adapter/api/client.h"
#include "adapter/api/messages.h"
#include "app/cli/views.h"
#include "cmd/options.h"

namespace carve::cmd {

int slice_create(const SliceOptions& options) {
  auto request = request_of(options.ask);
  if (!request) return report(request.error());
  request->keep = true;
  request->name = "device";
  api::Client agent(options.host.agent_socket());
  const auto grant = agent.allocate({}, *request, {});
  if (!grant) return report(grant.error());
  if (options.output == "json") {
    std::printf("%s\n", api::to_json(*grant).c_str());
  } else if (options.output == "id") {
    std::printf("%s\n", grant->slice.c_str());
  } else {
    std::printf("%s", cli::render_grant(*grant).c_str());
  }
  return kExitOk;
}

int slice_delete(const SliceOptions& options) {
  api::Client agent(options.host.agent_socket());
  const auto released = agent.release({}, options.id, options.force);
  if (!released) return report(released.error());
  std::printf("%s deleted\n", options.id.c_str());
  return kExitOk;
}

int slice_list(const SliceOptions& options) {
  api::Client agent(options.host.agent_socket());
  const auto view = agent.view({});
  if (!view) return report(view.error());
  std::printf("%s%s",
              options.output == "json" ? api::to_json(*view).c_str() : cli::render_slices(*view).c_str(),
              options.output == "json" ? "\n" : "");
  return kExitOk;
}

}  // namespace carve::cmd
