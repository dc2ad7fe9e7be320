#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/cli/report.h"
#include "app/cli/timeline.h"
#include "base/result.h"
#include "cmd/options.h"
#include "core/history/history.h"

// carve timeline and carve report, for one machine and for a cluster.
namespace carve::cmd {

using Histories = std::vector<cli::NodeHistory>;
/// Asks this machine's agent, or the agents of a cluster.
using AskHistories = std::function<Result<Histories>(const HistoryQuery&)>;

/// Prints what the agents recorded about `what`: a card, a slice or a pod. Returns the exit code.
int print_timeline(const TimelineOptions& options, const std::string& what, const AskHistories& ask);
/// Writes the report's files. `facts`: what is known about now. Returns the exit code.
int write_report(const ReportOptions& options, cli::ReportFacts facts, const AskHistories& ask);

}  // namespace carve::cmd
