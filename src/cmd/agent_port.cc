#include "cmd/agent_port.h"

#include <algorithm>

#include "adapter/api/cgpu_files.h"
#include "adapter/api/gpu_manager.h"
#include "adapter/api/messages.h"
#include "app/node/compat_metrics.h"
#include "app/node/node_metrics.h"
#include "cmd/process_metrics.h"
#include "codec/history/history_segment.h"
#include "codec/metrics/metrics_text.h"

namespace carve::cmd {
namespace {

HttpResponse plain(int status, const std::string& text) { return {status, "text/plain; charset=utf-8", text + "\n"}; }

/// The sources of the answers: the node's agent, and the keeper's count of crashed agents.
struct Port {
  AgentApi& agent;
  const node::ClaimHolders& claims;
  std::string node;
  std::uint64_t crashes = 0;
};

std::string metrics_of(const AgentView& view, const Port& port) {
  codec::MetricsText process;
  process.family("carve_agent_crashes_total", codec::MetricsText::Kind::kCounter,
                 "Agents of this pod that crashed and were restarted by the keeper.");
  process.sample(port.crashes, {{"node", port.node}});
  write_process(&process);
  return node::node_metrics(view, port.node, port.claims.all()) + process.text();
}

HttpResponse history(const Port& port, const HttpRequest& ask) {
  const auto parameters = codec::parse_web_query(ask.query, codec::kHistoryParameters);
  const auto query =
      parameters ? codec::parse_history_query(*parameters) : Result<HistoryQuery>(tl::unexpected(parameters.error()));
  if (!query) return plain(400, query.error().what);
  const auto found = port.agent.history({}, *query);
  return found ? HttpResponse{200, "application/json", codec::to_json(*found)} : plain(503, found.error().what);
}

/// What is made from the agent's view.
struct ViewRow {
  std::string_view path;
  HttpResponse (*answer)(const Port& port, AgentView view);
};
constexpr ViewRow kViews[] = {
    {"/metrics",
     [](const Port& port, AgentView view) {
       return HttpResponse{200, std::string(codec::kMetricsType), metrics_of(view, port)};
     }},
    {"/v1/node",
     [](const Port&, AgentView view) {
       return HttpResponse{200, "application/json", api::public_json(std::move(view))};
     }},
    {"/usage",
     [](const Port&, AgentView view) { return HttpResponse{200, "application/json", api::gpu_manager_usage(view)}; }},
    {"/graph",
     [](const Port&, AgentView view) { return HttpResponse{200, "application/json", api::gpu_manager_graph(view)}; }},
    {"/version",
     [](const Port&, AgentView view) { return HttpResponse{200, "application/json", api::gpu_manager_version(view)}; }},
};

/// Views with a name in their path, as other systems have them; nullopt: no such file.
struct FileRow {
  std::string_view folder;
  std::string_view type;
  std::optional<std::string> (*file)(const AgentView& view, std::string_view rest);
};
constexpr FileRow kFiles[] = {
    {"/cgpu_km/", "text/plain; charset=utf-8", &api::cgpu_file},
    {"/vcuda/", "application/octet-stream",
     [](const AgentView& view, std::string_view rest) -> std::optional<std::string> {
       const auto uid = rest.substr(0, rest.find('/'));
       auto container = rest.substr(std::min(rest.size(), uid.size() + 1));
       constexpr std::string_view kName = "/vcuda.config";
       if (!container.ends_with(kName)) return std::nullopt;
       container.remove_suffix(kName.size());
       return api::gpu_manager_config(view, uid, container);
     }},
};

HttpResponse answer(const Port& port, const HttpRequest& ask) {
  const auto at_path = [&](const auto& row) { return row.path == ask.path; };
  const auto* const view_row = std::find_if(std::begin(kViews), std::end(kViews), at_path);
  const auto compat_rows = node::compat_metrics();
  const auto compat = std::find_if(compat_rows.begin(), compat_rows.end(), at_path);
  const auto* const file_row = std::find_if(std::begin(kFiles), std::end(kFiles),
                                            [&](const FileRow& row) { return ask.path.starts_with(row.folder); });
  const bool of_view =
      view_row != std::end(kViews) || compat != compat_rows.end() || file_row != std::end(kFiles);
  if (!of_view && ask.path != "/healthz" && ask.path != "/v1/history")
    return plain(404, "there is nothing at this path");
  if (ask.method != "GET" && ask.method != "HEAD") return plain(405, "this path does not support this method");
  if (ask.path == "/healthz") return plain(200, "ok");
  if (ask.path == "/v1/history") return history(port, ask);
  auto view = port.agent.view({});
  if (!view) return plain(503, view.error().what);
  if (view_row != std::end(kViews)) return view_row->answer(port, std::move(*view));
  if (file_row != std::end(kFiles)) {
    auto text = file_row->file(*view, std::string_view(ask.path).substr(file_row->folder.size()));
    if (!text) return plain(404, "there is no such file");
    return {200, std::string(file_row->type), std::move(*text)};
  }
  return {200, std::string(codec::kMetricsType), compat->text(*view, port.node)};
}

}  // namespace

Result<std::unique_ptr<http::Server>> open_agent_port(const std::string& listen, AgentApi& agent,
                                                      const node::ClaimHolders& claims, const std::string& node,
                                                      std::uint64_t crashes, Log& log) {
  http::ServerOptions options;
  options.listen = listen;
  options.limits.body = 1UL << 10U;  // no request has a body
  options.limits.connections = 64;
  options.limits.threads = 1;
  options.limits.waiting_threads = 1;
  return http::Server::open(
      options, [port = Port{agent, claims, node, crashes}](const HttpRequest& ask) { return answer(port, ask); }, log);
}

}  // namespace carve::cmd
