#include "cmd/agent_main.h"
#include "cmd/dashboard.h"
#include "cmd/options.h"

// The commands of a cluster in a build for one machine (the target carve_machine), which contains no client of
// Kubernetes.
namespace carve::cmd {
namespace {

int missing(const std::string& command) {
  return report({Code::kFailedPrecondition, command + ": this is a build for one machine; build the target carve"});
}

}  // namespace

int run_node_agent(const HostOptions&, const NodeOptions&, Clock&, Log&, const sigset_t&) {
  return missing("agent --node-name");
}
int run_node_down(const DownOptions&) { return missing("down --node"); }
int run_control(const ControlOptions&) { return missing("control"); }
int inspect_cluster(const ClusterOptions&) { return missing("inspect --cluster"); }
int top_cluster(const ClusterOptions&, const ViewOptions&) { return missing("top --cluster"); }
int doctor_cluster(const ClusterOptions&) { return missing("doctor --cluster"); }
int explain_pod(const ClusterOptions&) { return missing("explain"); }
int dashboard_of_cluster(const DashboardOptions&, const sigset_t&) { return missing("dashboard --cluster"); }
int timeline_of_cluster(const TimelineOptions&) { return missing("timeline --cluster"); }
int report_of_cluster(const ReportOptions&) { return missing("report --cluster"); }
int lint(const ManifestOptions&) { return missing("lint"); }
int convert(const ManifestOptions&) { return missing("convert"); }

}  // namespace carve::cmd
