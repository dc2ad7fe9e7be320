#include "cmd/control_dashboard.h"

#include "adapter/api/messages.h"
#include "app/cli/cluster/agents.h"
#include "app/control/api/explain.h"
#include "app/control/state/pod_entry.h"
#include "app/dashboard/boards.h"
#include "cmd/dashboard_sources.h"
#include "cmd/web_files.h"
#include "codec/cluster/notes.h"

namespace carve::cmd {

ControlDashboard::ControlDashboard(World world)
    : world_(std::move(world)),
      reasons_(world_.clock),
      viewers_(world_.api, world_.clock),
      events_(world_.api, world_.clock),
      samples_([this] { return cli::ask_agents(world_.api, world_.namespace_name, "", api::view_of_json); },
               world_.clock),
      usage_(ask_all_histories(world_.api, world_.namespace_name), ask_quotas(world_.api), world_.clock,
             [this] { return codec::card_quotas(world_.model.quota_uses()); }),
      page_(sources(), web_files(), world_.clock) {}

Result<std::string> ControlDashboard::explain(const std::string& namespace_name, const std::string& pod) const {
  CARVE_TRY(const auto text, world_.api.get(control::pod_path(namespace_name, pod)));
  CARVE_TRY(const auto object, codec::parse_cluster_pod(text));
  auto said = control::explain(object, world_.requests, world_.model, world_.rules());
  if (const auto events = world_.api.list("/api/v1/namespaces/" + namespace_name + "/events",
                                          {{"fieldSelector", "involvedObject.uid=" + object.ask.uid}}))
    said.scheduler_says = codec::scheduler_word(*events);
  return codec::to_json(said);
}

dashboard::Sources ControlDashboard::sources() {
  dashboard::Sources sources;
  sources.board = [this]() -> Result<codec::Board> {
    if (!world_.model.synced())
      return fail(Code::kUnavailable, "control does not know the cluster yet: the first lists are incomplete");
    auto board =
        dashboard::board_of_cluster(reasons_.view(world_.model, world_.claims, world_.rules()), *samples_.latest());
    events_.add(&board);
    return board;
  };
  add_agent_sources(world_.api, world_.namespace_name, usage_, &sources);
  sources.explain = [this](const std::string& namespace_name, const std::string& pod) {
    return explain(namespace_name, pod);
  };
  sources.admit = [this](const std::string& token, const std::set<std::string>& namespaces) {
    return viewers_.admit(token, namespaces);
  };
  return sources;
}

}  // namespace carve::cmd
