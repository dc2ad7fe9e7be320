#include <cstdio>

#include "adapter/api/client.h"
#include "adapter/api/messages.h"
#include "adapter/cdi/cdi_files.h"
#include "adapter/process/text_file.h"
#include "app/cli/slice_table.h"
#include "app/cli/views.h"
#include "cmd/document.h"
#include "cmd/live.h"
#include "cmd/options.h"
#include "codec/host/injection.h"

namespace carve::cmd {

namespace {

/// Prints the slice for an engine that does not support container devices, one argument or variable per line.
///   devices  the folder of container devices
Result<void> print_form(const std::string& form, const Grant& grant, const std::string& devices) {
  std::vector<std::string> lines;
  if (form == "nvidia-runtime") {
    std::vector<std::string> uuids;
    for (const auto& card : grant.cards) uuids.push_back(card.card.str());
    lines = codec::nvidia_environment(uuids);
  } else {
    CARVE_TRY(const auto spec, process::read_text(cdi::CdiFiles(devices).path_of(grant.slice)));
    CARVE_TRY(const auto injection, codec::parse_injection(spec));
    CARVE_TRY(lines, codec::docker_arguments(injection));
  }
  for (const auto& line : lines) std::printf("%s\n", line.c_str());
  return {};
}

/// The folder of the agent's CDI files. The agent may have been started with other flags than this command.
std::string folder_of_devices(AgentApi& agent, const HostOptions& host) {
  const auto view = agent.view({});
  return view && !view->device_folder.empty() ? view->device_folder : host.cdi_dir;
}

}  // namespace

int slice_create(const SliceOptions& options) {
  auto request = request_of(options.ask);
  if (!request) return report(request.error());
  if (options.output == "nvidia-runtime" && !request->request.whole) {
    return report({Code::kInvalidArgument,
                   "--output: nvidia-runtime needs --whole: that runtime mounts the driver over libcarve, which "
                   "enforces a fraction's limits; legal for a fraction are text, json, id and docker"});
  }
  request->keep = true;
  request->name = "device";
  api::Client agent(options.host.agent_socket(), api::kAgentsRestart);
  const auto grant = agent.allocate({}, *request, {});
  if (!grant) return report(grant.error());
  Result<void> printed;
  if (options.output == "json") {
    std::printf("%s\n", api::to_json(*grant).c_str());
  } else if (options.output == "id") {
    std::printf("%s\n", grant->slice.c_str());
  } else if (options.output == "docker" || options.output == "nvidia-runtime") {
    printed = print_form(options.output, *grant, folder_of_devices(agent, options.host));
  } else {
    std::printf("%s", cli::render_grant(*grant).c_str());
  }
  if (printed) printed = flush_output();
  if (!printed) {
    static_cast<void>(agent.release({}, grant->slice, true));  // the caller did not get its ID
    return report(printed.error());
  }
  return kExitOk;
}

int slice_delete(const SliceOptions& options) {
  api::Client agent(options.host.agent_socket(), api::kAgentsRestart);
  const auto released = agent.release({}, options.id, options.force);
  if (!released) return report(released.error());
  std::printf("%s deleted\n", options.id.c_str());
  return kExitOk;
}

int slice_list(const SliceOptions& options) {
  api::Client agent(options.host.agent_socket(), api::kAgentsRestart);
  return show_watched(options.watch, options.output, [&]() -> Result<std::string> {
    CARVE_TRY(const auto view, agent.view({}));
    if (is_document(options.output)) return document(api::to_json(view), options.output);
    if (options.output == "csv") return cli::SliceTable(cli::SortSlices::kName, "").csv({{"localhost", view, {}}});
    if (options.output == "text") return cli::render_slices(view);
    std::string names;
    for (const auto& slice : view.slices) names += slice.id + "\n";
    return names;
  });
}

}  // namespace carve::cmd
