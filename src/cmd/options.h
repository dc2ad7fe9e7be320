#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/host_options.h"
#include "cmd/view_options.h"
#include "codec/dialects/run_request.h"

// The options. A flag overrides the configuration file, the file overrides the default. There is no other source.
namespace carve::cmd {

/// Carve's own exit codes. `carve run` otherwise ends with the code of its command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;        // a flag, a value, the configuration file
inline constexpr int kExitRunFailed = 125;  // carve run: no slice, or the process cannot join it
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;

struct UpOptions {
  HostOptions host;
  std::string simulate;  // profile; empty: the real driver
  std::string dashboard;  // loopback address and port of the web page; empty: none
  bool check_config = false;
};

struct DownOptions {
  HostOptions host;
  bool force = false;
  // For a Kubernetes node:
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
  std::optional<std::string> wait;  // "": without a limit
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
  bool watch = false;  // list: again whenever it changes
  std::string output = "text";
};

/// carve control, which places the pods of a whole cluster.
struct ControlOptions {
  std::string kubeconfig;      // empty: as a pod of the cluster
  std::string namespace_name = "carve-system";
  std::string cluster_config;  // file; empty: the defaults
  std::string identity;        // of this replica, in the Lease; empty: the host name
  std::string advertise;       // HOST:PORT at which other replicas reach --listen; empty: they cannot
  std::string listen = ":8443";
  std::string plain_listen = ":8080";
  bool gpushare_http = false;  // gpushare's filter and inspect on the plain port
};

/// carve lint, carve convert.
struct ManifestOptions {
  std::vector<std::string> files;  // files, folders, "-" for stdin
  std::string cluster_config;      // file; empty: the defaults
  std::string to;                  // convert: native, claim or dra; empty: requests stay as they are spelled
};

struct ProbeOptions {
  HostOptions host;
  std::string what;  // agent or arbiter
};

/// The agent of a Kubernetes node. Empty name: the agent of a single machine, as `carve up` starts it.
struct NodeOptions {
  std::string name;
  std::string kubeconfig;  // empty: as a pod of the cluster
  std::string plugins;           // dra, slots, dra,slots[,shared]; empty: as the cluster's configuration says, else dra
  std::string cluster_config;  // file; it does not exist: control is not installed
  std::string kubelet_dir = "/var/lib/kubelet";
  std::string runtime_socket;  // of the container runtime; empty: the usual paths
  std::string totals;          // extended resources to keep on the Node, as a list; empty: like `plugins`, else none
  std::string listen;    // metrics and views, read-only; empty: not served
  std::string instance;  // in the names of the DRA driver's sockets: during an upgrade two agents run
  // Set by the keeper that starts this agent (keep_agent.h), never by a person:
  int kept_by = -1;           // descriptor of the socket to the keeper
  std::uint64_t crashes = 0;  // agents of this keeper that crashed before this one
};

int run_up(const UpOptions& options);
int run_down(const DownOptions& options);
int run_node_down(const DownOptions& options);
int run_keep_files(const KeepFilesOptions& options);
int run_agent(const HostOptions& options, const NodeOptions& node = {});
/// `host_root`: the worker enters it first, so that it finds the driver by the host's paths.
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
int run_dashboard(const DashboardOptions& options);
int timeline(const TimelineOptions& options);
int timeline_of_cluster(const TimelineOptions& options);
int write_report(const ReportOptions& options);
int report_of_cluster(const ReportOptions& options);
/// Whether a dashboard may listen there. An error begins with `flag`.
///   errors  kInvalidArgument: not a loopback address
[[nodiscard]] Result<void> check_loopback(const std::string& flag, const std::string& listen);
int top(const ViewOptions& options);
int doctor(const ViewOptions& options);
int probe(const ProbeOptions& options);
int version(const ViewOptions& options);
int lint(const ManifestOptions& options);
int convert(const ManifestOptions& options);

/// "500ms", "60s", "5m", "2h". kInvalidArgument names the field and the legal units.
[[nodiscard]] Result<std::chrono::milliseconds> parse_duration(const std::string& field,
                                                               const std::string& text);

/// The request that the flags describe, ready to be sent.
[[nodiscard]] Result<AllocateRequest> request_of(const AskOptions& ask);

/// Prints "carve: <what>" to stderr and returns the matching exit code.
int report(const Error& error, int otherwise = kExitFailed);

/// Flushes the standard output. A command fails if its output cannot be written: the error is the system's.
[[nodiscard]] Result<void> flush_output();

/// The exit code of a command that ended with `code` and has printed its output: flushes it first.
[[nodiscard]] int after_output(int code);

/// The version, "0.1.0", and the commit of this build ("unknown" outside a repository).
extern const char* const kVersion;
extern const char* const kCommit;

/// The folder for the cgroups of `carve run`'s slices: --cgroup-root, or "carve" below the cgroup2 mount.
///   errors  kUnavailable: no cgroup2 mount
[[nodiscard]] Result<std::string> cgroup_folder(const HostOptions& host);

/// The name of this machine; "localhost" if it has none.
[[nodiscard]] std::string host_name();

/// This executable's path, and its folder.
[[nodiscard]] std::string own_path();
[[nodiscard]] std::string own_folder();

}  // namespace carve::cmd
