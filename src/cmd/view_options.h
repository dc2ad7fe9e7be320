#pragma once

#include <string>

#include "cmd/host_options.h"

// The options of the commands that show something: of this machine or of a cluster, now or in the past.
namespace carve::cmd {

struct ViewOptions {
  HostOptions host;
  std::string output = "text";
  bool once = false;
  bool watch = false;  // inspect: again whenever it changes
  std::string every = "1s";
  std::string sort;    // top: one line per slice, sorted by this; empty: by card
  std::string filter;  // top: only slices with these words
  bool node = false;  // doctor: also check what a Kubernetes node needs
};

/// A question about a whole cluster. The API server answers it with the rights of the user's kubeconfig.
struct ClusterOptions {
  bool wanted = false;     // the cluster, not this machine
  std::string kubeconfig;  // empty: $KUBECONFIG, else ~/.kube/config, like kubectl
  std::string context;     // of the kubeconfig; empty: the current one
  std::string carve;       // the namespace in which Carve is installed; empty: carve-system
  std::string namespace_name = "default";
  std::string name;  // of the node (inspect: optional) or the pod (explain)
  std::string output = "text";
  bool details = false;  // inspect -o gpushare: a line per pod
  bool watch = false;    // inspect, explain: again whenever it changes

  /// Whether a flag selects a cluster.
  [[nodiscard]] bool of_cluster() const { return wanted || !kubeconfig.empty() || !context.empty() || !carve.empty(); }
};

/// carve dashboard.
struct DashboardOptions {
  HostOptions host;
  ClusterOptions of;  // a cluster, or this machine
  std::string listen = "127.0.0.1:0";
  std::string link_file;  // where the link is written instead of the standard output; set by `carve up`
};

/// carve timeline.
struct TimelineOptions {
  HostOptions host;
  ClusterOptions of;  // a cluster, or this machine; `name`: the card, pod or slice
  std::string since = "1h";
  std::string output = "text";
};

/// carve report.
struct ReportOptions {
  HostOptions host;
  ClusterOptions of;
  std::string since = "7d";
  std::string file = "carve-report.html";
  std::string csv;  // empty: none
};

}  // namespace carve::cmd
