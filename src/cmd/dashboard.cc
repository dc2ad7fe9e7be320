#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <random>

#include "adapter/api/client.h"
#include "adapter/api/messages.h"
#include "adapter/http/server.h"
#include "adapter/process/text_file.h"
#include "app/dashboard/boards.h"
#include "app/dashboard/dashboard_api.h"
#include "app/dashboard/one_time_links.h"
#include "app/dashboard/usage_reader.h"
#include "cmd/dashboard.h"
#include "cmd/options.h"
#include "cmd/stop_signals.h"
#include "cmd/web_files.h"
#include "codec/history/history_segment.h"

// carve dashboard: the web page for one person, on a loopback address, with this person's rights.
namespace carve::cmd {
namespace {

using dashboard::HistoryRequest;
using dashboard::OneTimeLinks;
using dashboard::Sources;

/// 128 random bits.
std::string secret() {
  std::random_device random;  // the kernel's
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

Result<HistoryQuery> query_of(const HistoryRequest& request) {
  HistoryQuery query;
  query.card = request.card;
  query.slice = request.slice;
  CARVE_TRY(query.since, codec::parse_history_span("since", request.since));
  return query;
}

/// What the agent of this machine tells this user. `clock` outlives the sources.
Sources machine_sources(const HostOptions& host, const Clock& clock) {
  const auto agent = std::make_shared<api::Client>(host.agent_socket());
  const std::string node = host_name();
  Sources sources;
  sources.board = [agent, node]() -> Result<codec::Board> {
    CARVE_TRY(const auto view, agent->view({}));
    return dashboard::board_of_machine(view, node);
  };
  sources.node = [agent](const std::string&) -> Result<std::string> {
    CARVE_TRY(const auto view, agent->view({}));
    return api::to_json(view);
  };
  sources.history = [agent](const HistoryRequest& request) -> Result<std::string> {
    CARVE_TRY(const auto query, query_of(request));
    CARVE_TRY(const auto found, agent->history({}, query));
    return codec::to_json(found);
  };
  const auto usage = std::make_shared<dashboard::UsageReader>(
      [agent](const HistoryQuery& query, const auto& agents, const auto& take, const auto&) -> Result<void> {
        agents(1);
        CARVE_TRY(const auto found, agent->history({}, query));
        take(found);
        return {};
      },
      dashboard::UsageReader::Quotas(), clock);
  sources.usage = [usage](const std::string& since) -> Result<dashboard::UsageReader::Shared> {
    CARVE_TRY(const auto span, codec::parse_history_span("since", since));
    return usage->of(span);
  };
  return sources;
}

}  // namespace

int serve_page(const DashboardOptions& options, Sources sources, const sigset_t& stop_signals) {
  std::atomic<unsigned> port = 0;
  std::string first;
  const auto show = [&](const std::string& key) {
    if (port == 0) {
      first = key;
      return;
    }
    const std::string link = fmt::format("http://{}:{}/dashboard/#key={}",
                                         options.listen.substr(0, options.listen.rfind(':')), port.load(), key);
    if (options.link_file.empty()) {
      std::printf("dashboard: %s\n", link.c_str());
      std::fflush(stdout);
    } else if (auto written = process::replace_file(options.link_file, link + "\n", 0600); !written) {
      std::fprintf(stderr, "carve: the link is not written: %s\n", written.error().what.c_str());
    }
  };
  OneTimeLinks links(secret, show);
  sources.admit = [&links](const std::string& token, const auto&) { return links.admit(token); };
  sources.session = [&links](const std::string& key) { return links.exchange(key); };
  SystemClock clock;
  Log log([](std::string_view) {});
  dashboard::DashboardApi page(std::move(sources), web_files(), clock);
  http::ServerOptions server;
  server.listen = options.listen;
  server.limits.body = 1024;  // no request has a body
  server.limits.connections = 128;
  server.limits.threads = 1;
  server.limits.waiting_threads = 4;
  server.waits = [](const HttpRequest& ask) { return dashboard::DashboardApi::waits(ask); };
  const auto opened = http::Server::open(
      server, [&page](const HttpRequest& ask) { return page.answer(ask); }, log);
  if (!opened) return report(opened.error());
  port = (*opened)->port();
  show(first);
  if (options.link_file.empty()) {
    std::printf("The link works once; the next one is printed then. End with Ctrl-C.\n");
    std::fflush(stdout);
  }
  int signal = 0;
  ::sigwait(&stop_signals, &signal);
  (*opened)->stop(std::chrono::milliseconds(200));
  if (!options.link_file.empty()) ::unlink(options.link_file.c_str());
  return kExitOk;
}

// At another address, any host of the network could try keys, and read what the browser gets.
Result<void> check_loopback(const std::string& flag, const std::string& listen) {
  const auto colon = listen.rfind(':');
  const auto host = listen.substr(0, colon);
  if (colon != std::string::npos && (host == "127.0.0.1" || host == "[::1]")) return {};
  return fail(Code::kInvalidArgument, flag + ": \"" + listen.substr(0, 64) +
                                          "\"; legal are 127.0.0.1:PORT and [::1]:PORT; to look from another machine, "
                                          "forward the port: ssh -L");
}

int run_dashboard(const DashboardOptions& options) {
  if (auto legal = check_loopback("--listen", options.listen); !legal) return report(legal.error());
  const sigset_t stop_signals = block_stop_signals();
  SystemClock clock;
  if (options.of.of_cluster()) return dashboard_of_cluster(options, stop_signals);
  return serve_page(options, machine_sources(options.host, clock), stop_signals);
}

}  // namespace carve::cmd
