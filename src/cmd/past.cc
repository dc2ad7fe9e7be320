#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "adapter/api/client.h"
#include "adapter/process/text_file.h"
#include "app/cli/cells.h"
#include "app/cli/views.h"
#include "cmd/document.h"
#include "cmd/options.h"
#include "cmd/past.h"
#include "codec/history/history_segment.h"

// carve timeline and carve report: what the agents recorded.
namespace carve::cmd {
namespace {

Result<Histories> ask_machine(const HostOptions& host, const HistoryQuery& query) {
  CARVE_TRY(auto found, api::Client(host.agent_socket(), api::kAgentsRestart).history({}, query));
  return Histories{{host_name(), std::move(found)}};
}

std::size_t columns_of_terminal() {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

}  // namespace

int print_timeline(const TimelineOptions& options, const std::string& what, const AskHistories& ask) {
  const auto since = codec::parse_history_span("--since", options.since);
  if (!since) return report(since.error());
  Histories all;
  for (const auto& query : cli::queries_about(what, *since)) {
    auto found = ask(query);
    if (!found) return report(found.error());
    for (auto& one : *found) {
      // Most nodes have nothing about one pod or card.
      if (one.answer && one.answer->lines.empty()) continue;
      all.push_back(std::move(one));
    }
  }
  Result<std::string> text = options.output == "csv" ? cli::timeline_csv(all)
                             : is_document(options.output)
                                 ? document(cli::timeline_json(all), options.output)
                                 : Result<std::string>(cli::render_timeline(all, columns_of_terminal()));
  if (!text) return report(text.error());
  std::printf("%s", text->c_str());
  return kExitOk;
}

int write_report(const ReportOptions& options, cli::ReportFacts facts, const AskHistories& ask) {
  const auto since = codec::parse_history_span("--since", options.since);
  if (!since) return report(since.error());
  const SystemClock clock;
  facts.since = *since;
  facts.unix_seconds = std::chrono::duration_cast<std::chrono::seconds>(clock.wall_now().time_since_epoch()).count();
  HistoryQuery query;
  query.since = *since;
  query.points = 300;
  auto cards = ask(query);
  if (!cards) return report(cards.error());
  facts.cards = std::move(*cards);
  query.by = HistoryQuery::By::kNamespaces;
  auto namespaces = ask(query);
  if (!namespaces) return report(namespaces.error());
  facts.namespaces = std::move(*namespaces);
  if (auto done = process::replace_file(options.file, cli::report_html(facts), 0644); !done)
    return report(done.error());
  std::printf("written: %s\n", options.file.c_str());
  if (options.csv.empty()) return kExitOk;
  if (auto done = process::replace_file(options.csv, cli::report_csv(facts), 0644); !done) return report(done.error());
  std::printf("written: %s\n", options.csv.c_str());
  return kExitOk;
}

int timeline(const TimelineOptions& options) {
  if (options.of.of_cluster()) return timeline_of_cluster(options);
  return print_timeline(options, options.of.name,
                        [&](const HistoryQuery& query) { return ask_machine(options.host, query); });
}

int write_report(const ReportOptions& options) {
  if (options.of.of_cluster()) return report_of_cluster(options);
  cli::ReportFacts facts;
  facts.scope = "this machine";
  const auto view = api::Client(options.host.agent_socket(), api::kAgentsRestart).view({});
  if (!view) return report(view.error());
  facts.models = cli::describe_cards(*view);
  for (const auto& card : view->cards) {
    if (!card.card.health.ok) facts.unhealthy.push_back(card.card.id.str() + ": " + card.card.health.reason);
  }
  return write_report(options, std::move(facts),
                      [&](const HistoryQuery& query) { return ask_machine(options.host, query); });
}

}  // namespace carve::cmd
