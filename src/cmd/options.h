#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/host_options.h"
#include "codec/dialects/run_request.h"

// What the command line and the configuration file come to. defaults < file < flag, no other source.
namespace carve::cmd {

/// Exit codes: `carve run` ends with its command's code; these are carve's own.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;        // a flag, a value, the configuration file
inline constexpr int kExitRunFailed = 125;  // carve run: no slice, or no way into it
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;

struct UpOptions {
  HostOptions host;
  std::string simulate;  // profile; empty: the real driver
  bool check_config = false;
};

struct DownOptions {
  HostOptions host;
  bool force = false;
  // Of a node of Kubernetes:
  std::string node;  // its name; empty: what `carve up` started on this machine
  std::string kubeconfig;
  std::string cluster_config;
  std::string kubelet_dir = "/var/lib/kubelet";
  bool stay = false;
};

struct KeepFilesOptions {
  std::string from;
  std::string to;
  int every = 10;  // seconds
};

struct AskOptions {
  codec::RunWords words;
  bool whole = false;
  std::string policy = "binpack";
  std::optional<std::string> wait;  // "" : for ever
};

struct RunOptions {
  HostOptions host;
  AskOptions ask;
  std::vector<std::string> command;
};

struct SliceOptions {
  HostOptions host;
  AskOptions ask;
  std::string id;
  bool force = false;
  std::string output = "text";
};

struct ViewOptions {
  HostOptions host;
  std::string output = "text";
  bool once = false;
  std::string every = "1s";
  bool node = false;  // doctor: also what a node of Kubernetes needs
};

/// What is asked of a whole cluster, with the right of whoever asks.
struct ClusterOptions {
  bool wanted = false;     // the cluster, not this machine
  std::string kubeconfig;  // empty: $KUBECONFIG, ~/.kube/config, as kubectl
  std::string carve;       // the namespace in which Carve is installed; empty: carve-system
  std::string space = "default";
  std::string name;  // of the node (inspect: optional) or the pod (explain)
  std::string output = "text";
  bool details = false;  // inspect -o gpushare: a line per pod

  /// Something says that it is about a cluster.
  [[nodiscard]] bool of_cluster() const { return wanted || !kubeconfig.empty() || !carve.empty(); }
};

/// What decides for a whole cluster.
struct ControlOptions {
  std::string kubeconfig;      // empty: as a pod of the cluster
  std::string space = "carve-system";
  std::string cluster_config;  // file; empty: the defaults
  std::string identity;        // of this replica, for people; empty: the host's name
  std::string advertise;       // HOST:PORT by which other replicas reach --listen; empty: they cannot
  std::string listen = ":8443";
  std::string plain_listen = ":8080";
  bool gpushare_http = false;  // gpushare's filter and inspect on the plain port
};

struct ProbeOptions {
  HostOptions host;
  std::string what;  // agent or arbiter
};

/// The agent as a node of Kubernetes. Empty name: on a machine by itself, as `carve up` starts it.
struct NodeOptions {
  std::string name;
  std::string kubeconfig;  // empty: as a pod of the cluster
  std::string doors;           // dra, slots, dra,slots[,shared]; empty: as the cluster's configuration says, else dra
  std::string cluster_config;  // file; none there: control is not installed
  std::string kubelet_dir = "/var/lib/kubelet";
  std::string runtime_socket;  // of the container runtime; empty: where they usually have it
  std::string totals;          // extended resources to keep on the Node, as a list; empty: the same way
  std::string listen;    // metrics and views, to read; empty: nowhere
  std::string instance;  // in the names of the DRA door's sockets: two agents during an upgrade
  // As its keeper starts it (keep_agent.h), never a person:
  int kept_by = -1;           // descriptor of the keeper's line
  std::uint64_t crashes = 0;  // of agents that it follows
};

int run_up(const UpOptions& options);
int run_down(const DownOptions& options);
int run_node_down(const DownOptions& options);
int run_keep_files(const KeepFilesOptions& options);
int run_agent(const HostOptions& options, const NodeOptions& node = {});
/// `host_root`: enters the host's files first, so that the driver is found, and named, as the host does.
int run_worker(const std::string& driver_root, const std::string& host_root);
int run_command(const RunOptions& options);
int slice_create(const SliceOptions& options);
int slice_delete(const SliceOptions& options);
int slice_list(const SliceOptions& options);
int inspect(const ViewOptions& options);
int run_control(const ControlOptions& options);
int top_cluster(const ClusterOptions& options, const ViewOptions& how);
int doctor_cluster(const ClusterOptions& options);
int inspect_cluster(const ClusterOptions& options);
int explain_pod(const ClusterOptions& options);
int top(const ViewOptions& options);
int doctor(const ViewOptions& options);
int probe(const ProbeOptions& options);
int version(const ViewOptions& options);

/// "500ms", "60s", "5m", "2h". kInvalidArgument names the field and the legal units.
[[nodiscard]] Result<std::chrono::milliseconds> parse_duration(const std::string& field,
                                                               const std::string& text);

/// The request that the words stand for, ready to be sent.
[[nodiscard]] Result<AllocateRequest> request_of(const AskOptions& ask);

/// Prints "carve: <what>" to stderr and gives the exit code that fits.
int report(const Error& error, int otherwise = kExitFailed);

/// Writes out what was printed. A command whose output did not arrive did not succeed: the system's reason.
[[nodiscard]] Result<void> flush_output();

/// The exit code of a command that ended with `code` and has printed all it has to say.
[[nodiscard]] int after_output(int code);

/// "0.1.0", and the commit it was built from ("unknown" outside a repository).
extern const char* const kVersion;
extern const char* const kCommit;

/// Where slices of `carve run` have their cgroups: the flag's, or "carve" below the cgroup2 mount.
///   errors  kUnavailable: no cgroup2 mount
[[nodiscard]] Result<std::string> cgroup_folder(const HostOptions& host);

/// This executable's path, and the folder it lies in.
[[nodiscard]] std::string own_path();
[[nodiscard]] std::string own_folder();

}  // namespace carve::cmd
