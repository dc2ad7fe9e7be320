#include "cmd/flags.h"

#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "app/cli/slice_table.h"

namespace carve::cmd {
namespace {

template <class Number>
bool whole_number(const std::string& text, Number* number) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, *number);
  return read.ec == std::errc() && read.ptr == end && *number >= 0;
}

bool is_packet_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

void host_flags(CLI::App* app, HostOptions* host, bool server) {
  app->add_option("--runtime-dir", host->runtime_dir, "folder of this instance's sockets, pages and slices")
      ->type_name("FOLDER")
      ->capture_default_str();
  app->add_option("--config", host->config, "configuration file (default /etc/carve/carve.conf when it exists)")
      ->type_name("FILE");
  if (!server) return;
  app->add_option("--state-dir", host->state_dir, "folder of the journal")->type_name("FOLDER")->capture_default_str();
  app->add_option("--lib-dir", host->lib_dir,
                  "folder into which libcarve is installed for slices (default <state-dir>/lib)")
      ->type_name("FOLDER");
  app->add_option("--lib-source", host->lib_source,
                  "folder from which libcarve-cuda.so and libcarve-nvml.so are installed "
                  "(default: next to the executable)")
      ->type_name("FOLDER");
  app->add_option("--driver-root", host->driver_root,
                  "folder of the driver's libraries (default: the loader's search path)")
      ->type_name("FOLDER");
  app->add_option("--host-root", host->host_root,
                  "in a container: the folder where the host's / is mounted; the driver is searched there, and files "
                  "for container runtimes name the host's paths")
      ->type_name("FOLDER");
  app->add_option("--cdi-dir", host->cdi_dir, "folder of the container devices (CDI files)")
      ->type_name("FOLDER")
      ->capture_default_str();
  app->add_option("--cgroup-root", host->cgroup_root, "folder of the slices' cgroups (default <cgroup2 mount>/carve)")
      ->type_name("FOLDER");
  app->add_option("--health-policy", host->health_policy,
                  "file that says what the driver's error codes (XIDs) mean for a card; its lines override the "
                  "built-in table (docs/health.md)")
      ->type_name("FILE");
  app->add_option("--driver-mount", host->driver_mounts,
                  "an additional path that the driver needs in containers; may be given several times")
      ->type_name("PATH");
}

void device_flags(CLI::App* app, HostOptions* host) {
  app->add_option_function<std::string>(
         "--own-devices", [host](const std::string& word) { host->own_devices = word == "on"; },
         "on: /dev/nvidia0, … belong to Carve while it is up, and processes outside slices cannot open them; off")
      ->type_name("on|off")
      ->check(CLI::IsMember({"on", "off"}));
  app->add_option("--own-devices-group", host->own_devices_group,
                  "with --own-devices on: members of this group can open them outside slices too")
      ->type_name("GROUP");
}

void ask_flags(CLI::App* app, AskOptions* ask) {
  app->add_option("--memory", ask->words.memory, "device memory of each card, such as 4Gi, 4096Mi or 50%")
      ->type_name("SIZE");
  app->add_option("--cores", ask->words.cores,
                  "compute of each card in hundredths: 1 to 100; without --memory and --cards, a multiple of 100 "
                  "requests whole cards")
      ->type_name("N");
  app->add_option("--core-limit", ask->words.core_limit,
                  "the most compute of each card, on an idle card too: --cores to 100 (no limit, the default); with "
                  "--share burst or besteffort")
      ->type_name("N");
  app->add_option("--cards", ask->words.cards, "number of cards: 1 to 16")->type_name("N");
  app->add_option("--share", ask->words.share,
                  "fixed (capped even on an idle card), burst (guaranteed, plus idle compute) or besteffort (idle "
                  "compute only)")
      ->type_name("CLASS");
  app->add_option("--priority", ask->words.priority, "online, standard or offline")->type_name("CLASS");
  app->add_option("--model", ask->words.model, "only cards with this word in their model, such as H200")
      ->type_name("WORD");
  app->add_option("--card", ask->words.card, "only this card, by UUID; may be given several times")
      ->type_name("UUID");
  app->add_flag("--exclusive", ask->words.exclusive, "no other slice on the card");
  app->add_flag("--whole", ask->whole, "whole cards, without libcarve");
  app->add_option("--policy", ask->policy,
                  "binpack (fill cards that are in use first) or spread (use the emptiest cards first)")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--wait", ask->wait, "wait for free capacity: without a limit, or at most a time, such as --wait=60s")
      ->type_name("[TIME]")
      ->expected(0, 1)
      ->default_str("");
}

void output_flag(CLI::App* app, std::string* output, const std::vector<std::string>& legal) {
  std::string words;
  for (const auto& word : legal) words += (words.empty() ? "" : ", ") + word;
  app->add_option("-o,--output", *output, "output: " + words)
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check([legal, words](const std::string& value) {
        return std::find(legal.begin(), legal.end(), value) != legal.end()
                   ? std::string()
                   : "\"" + value + "\" is not an output format; legal are " + words;
      });
}

void watch_flag(CLI::App* app, bool* watch) {
  app->add_flag("-w,--watch", *watch, "print again whenever it changes, until Ctrl-C; on a terminal a full screen");
}

void node_flags(CLI::App* app, NodeOptions* node, CLI::Option* standalone) {
  app->add_option("--node-name", node->name, "name of the Node object; serve the kubelet of that node")
      ->type_name("NAME")
      ->excludes(standalone);
  app->add_option("--kubeconfig", node->kubeconfig, "how to reach the API server (default: as a pod of the cluster)")
      ->type_name("FILE");
  app->add_option("--plugins", node->plugins,
                  "kubelet plugins to serve: dra (the DRA driver), slots (the device plugin), dra,slots, or "
                  "dra,slots,shared (claims may get cards that slots use); default: as --cluster-config says, else dra")
      ->type_name("LIST");
  app->add_option("--doors", node->plugins, "the earlier name of --plugins")->group("");
  app->add_option("--cluster-config", node->cluster_config,
                  "settings that control and agents of this installation share; if the file does not exist, control "
                  "is not installed")
      ->type_name("FILE");
  app->add_option("--kubelet-dir", node->kubelet_dir, "the kubelet's --root-dir")
      ->type_name("FOLDER")
      ->capture_default_str();
  app->add_option("--runtime-socket", node->runtime_socket,
                  "CRI socket of the container runtime (default: the usual paths)")
      ->type_name("FILE");
  app->add_option("--totals", node->totals,
                  "extended resources to keep on the Node object; use only where admission turns them into slots "
                  "(default: as --cluster-config says, else none)")
      ->type_name("LIST");
  app->add_option("--listen", node->listen,
                  "address for metrics and `carve top --cluster`, over plain HTTP and read-only (default: none)")
      ->type_name("[ADDRESS]:PORT");
  app->add_option("--instance", node->instance, "unique word for this agent's socket names, such as the pod's UID")
      ->type_name("WORD");
  // A keeper passes these to its child (keep_agent.h). The help hides them, so the error text must name the flag.
  app->add_option_function<std::string>("--kept-by", [node](const std::string& text) {
       if (!whole_number(text, &node->kept_by) || !is_packet_socket(node->kept_by))
         throw CLI::ValidationError("--kept-by",
                                    '"' + text + "\" is not a socket to a keeper; only a keeper sets this flag");
     })->group("");
  app->add_option_function<std::string>("--crashes", [node](const std::string& text) {
       if (!whole_number(text, &node->crashes))
         throw CLI::ValidationError("--crashes", '"' + text + "\" is not a count; only a keeper sets this flag");
     })->group("");
}

void control_command(CLI::App& app, Everything& all) {
  auto* control = app.add_subcommand("control", "place the pods of a cluster (started by its Deployment)");
  control->add_option("--kubeconfig", all.control.kubeconfig, "how to reach the API server (default: as a pod of it)")
      ->type_name("FILE");
  control->add_option("--namespace", all.control.namespace_name,
                      "namespace of its coordination.k8s.io Lease, Secrets and Service")
      ->type_name("NAME")
      ->capture_default_str();
  control->add_option("--cluster-config", all.control.cluster_config,
                      "settings that control and agents of this installation share: dialects, policy, scheduler")
      ->type_name("FILE");
  control->add_option("--identity", all.control.identity, "this replica's name in the Lease (default: the host name)")
      ->type_name("NAME");
  control->add_option("--advertise", all.control.advertise,
                      "address where other replicas reach --listen; they forward bind calls to the leader")
      ->type_name("ADDRESS:PORT");
  control->add_option("--listen", all.control.listen, "port over TLS: scheduler extender, webhook, read API")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  control->add_option("--plain-listen", all.control.plain_listen, "port over plain HTTP: health and metrics")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  control->add_flag("--gpushare-http", all.control.gpushare_http,
                    "also serve gpushare's /gpushare-scheduler/filter and /inspect on the plain port, read-only and "
                    "without authentication; the setting dialects.gpushare-http = on does the same");
  control->footer("Examples:\n  carve control --cluster-config /etc/carve-cluster/cluster.conf\n"
                  "  carve control --kubeconfig ~/.kube/config --listen 127.0.0.1:8443 --plain-listen 127.0.0.1:8080");
}

void node_down_flags(CLI::App* down, DownOptions* options) {
  auto* node = down->add_option("--node-name", options->node,
                                "a Kubernetes node without an agent: delete what Carve left on the Node object and "
                                "on the disk");
  node->type_name("NAME");
  const auto of_node = [&](const char* flag, std::string* value, const char* text, const char* type) {
    down->add_option(flag, *value, text)->type_name(type)->needs(node);
  };
  of_node("--host-root", &options->host.host_root, "in a container: folder where the host's / is mounted", "FOLDER");
  of_node("--kubeconfig", &options->kubeconfig, "how to reach the API server (default: as a pod of it)", "FILE");
  of_node("--cluster-config", &options->cluster_config,
          "the agent's --cluster-config, which says which totals are Carve's", "FILE");
  of_node("--kubelet-dir", &options->kubelet_dir, "the kubelet's --root-dir", "FOLDER");
  down->add_flag("--stay", options->stay, "when done, wait for SIGTERM, as a DaemonSet needs")->needs(node);
}

void keep_files_command(CLI::App& app, KeepFilesOptions* options) {
  auto* keep = app.add_subcommand("keep-files", "copy the files of a mounted Secret to the host and keep them current");
  keep->add_option("--from", options->from, "folder where the Secret is mounted")->type_name("FOLDER")->required();
  keep->add_option("--to", options->to, "folder for the copies, which only root can read")
      ->type_name("FOLDER")
      ->required();
  keep->add_option("--every", options->every, "seconds between two checks: 1 to 3600")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  keep->footer("Example:\n  carve keep-files --from /etc/carve-tls --to /host/carve-scheduler");
}

void server_commands(CLI::App& app, Everything& all) {
  auto* up = app.add_subcommand("up", "start Carve on this machine and keep it running (foreground)");
  host_flags(up, &all.up.host, true);
  device_flags(up, &all.up.host);
  up->add_option("--simulate", all.up.simulate,
                 "use a simulated driver with these cards, such as h200x2, t4x1 or a100x8")
      ->type_name("PROFILE");
  up->add_option("--dashboard", all.up.dashboard,
                 "serve the web page on this loopback address; the link is printed, and the next one is always in "
                 "dashboard.link in the runtime folder")
      ->type_name("ADDRESS:PORT")
      ->expected(0, 1)
      ->default_str("127.0.0.1:0");
  up->add_flag("--check-config", all.up.check_config,
               "check the configuration, print its errors, and exit");
  up->footer(
      "Examples:\n  carve up\n  carve up --simulate h200x2 --dashboard\n  carve up --config /etc/carve/carve.conf "
      "--check-config\n\nConfiguration file, one `key = value` per line:\n  allow = group:ml max-memory=16Gi "
      "max-cores=50\n  allow = user:alice\n  on-memory-breach = kill        # or report\n  on-compute-breach "
      "= "
      "escalate    # the default: freeze, revoke, kill; or throttle (freeze only), kill (immediately), report\n"
      "  own-devices = on                # only slices open the cards\n"
      "  trusted-holders = /usr/bin/x    # root's programs that hold cards outside slices and are never suspects\n"
      "  slices-for-root = 16            # of the 128 of each card");
  auto* down = app.add_subcommand("down", "stop Carve on this machine and remove what it created");
  host_flags(down, &all.down.host, false);
  down->add_option("--cgroup-root", all.down.host.cgroup_root, "as given to `carve up`")->type_name("FOLDER");
  down->add_option("--state-dir", all.down.host.state_dir, "as given to `carve up`")
      ->type_name("FOLDER")
      ->capture_default_str();
  down->add_flag("--force", all.down.force, "end all slices and kill their processes");
  node_down_flags(down, &all.down);
  down->footer("Examples:\n  carve down\n  carve down --force\n  carve down --node-name n1 --kubeconfig admin.conf");
  auto* agent = app.add_subcommand("agent", "the agent process (started by `carve up`)");
  auto* standalone = agent->add_flag("--standalone", all.standalone, "run without a kubelet, as `carve up` starts it");
  host_flags(agent, &all.agent, true);
  device_flags(agent, &all.agent);
  node_flags(agent, &all.node, standalone);
  agent->footer(
      "Examples:\n  carve agent --standalone --runtime-dir /run/carve\n  carve agent --node-name n1 --plugins dra\n"
      "  carve agent --node-name n1 --kubeconfig /etc/carve/kubeconfig");
  auto* arbiter = app.add_subcommand("arbiter", "the arbiter process (started by `carve up`)");
  host_flags(arbiter, &all.arbiter, false);
  arbiter
      ->add_option("--cgroup-root", all.arbiter.cgroup_root,
                   "folder of the slices' cgroups, as given to the agent; only a process in its cgroup joins a slice")
      ->type_name("FOLDER");
  arbiter
      ->add_option("--trace", all.arbiter_trace,
                   "write every decision to PREFIX.<card's UUID>, for carve-trace-replay")
      ->type_name("PREFIX");
  arbiter->footer("Example:\n  carve arbiter --runtime-dir /run/carve");
  keep_files_command(app, &all.keep_files);
  auto* worker =
      app.add_subcommand("nvml-worker", "the process that loads the vendor's library (started by the agent)");
  worker->add_option("--driver-root", all.worker_root, "folder of the driver's libraries")
      ->type_name("FOLDER");
  worker->add_option("--host-root", all.worker_host, "folder where the host's / is mounted")->type_name("FOLDER");
}

void client_commands(CLI::App& app, Everything& all) {
  auto* run =
      app.add_subcommand("run", "run a command in a slice: carve run --memory 4Gi --cores 30 -- COMMAND");
  host_flags(run, &all.run.host, false);
  ask_flags(run, &all.run.ask);
  run->footer(
      "The command follows --. `carve run` becomes the command: signals, terminal and exit code are its own.\n"
      "Exit codes of carve itself: 2 bad flags, 125 no slice, 126 the command cannot be executed, 127 the command is "
      "not found.\n\nExamples:\n"
      "  carve run --memory 4Gi --cores 30 -- python train.py\n"
      "  carve run --memory 50% --cores 50 --share fixed --priority online -- ./serve\n"
      "  carve run --cards 2 --memory 8Gi --cores 25 --wait=10m -- torchrun job.py\n"
      "  carve run --whole -- nvidia-smi");
  auto* slice = app.add_subcommand("slice", "slices for containers: create, delete, list");
  slice->require_subcommand(1);
  auto* create = slice->add_subcommand("create", "create a slice and a container device (CDI) for it");
  host_flags(create, &all.create.host, false);
  ask_flags(create, &all.create.ask);
  create->add_option("--cdi-dir", all.create.host.cdi_dir, "folder of the container devices (CDI files)")
      ->type_name("FOLDER")
      ->capture_default_str();
  output_flag(create, &all.create.output, {"text", "json", "id", "docker", "nvidia-runtime"});
  create->footer(
      "Examples:\n  carve slice create --memory 4Gi --cores 30\n  podman run --device "
      "carve.elasticgpu.io/slice=$(carve slice create --memory 4Gi --cores 30 -o id) IMAGE\n"
      "For engines that do not support container devices:\n"
      "  docker run $(carve slice create --memory 4Gi --cores 30 -o docker) IMAGE\n"
      "  docker run --runtime=nvidia --env-file <(carve slice create --whole -o nvidia-runtime) IMAGE");
  auto* remove = slice->add_subcommand("delete", "end a slice");
  host_flags(remove, &all.remove.host, false);
  remove->add_option("ID", all.remove.id, "ID of the slice, as `carve slice list` prints it")->required();
  remove->add_flag("--force", all.remove.force, "end the slice even if processes use it");
  remove->footer("Example:\n  carve slice delete dev-1a2b3c-1");
  auto* list = slice->add_subcommand("list", "list all slices of this machine");
  host_flags(list, &all.list.host, false);
  output_flag(list, &all.list.output, {"text", "json", "yaml", "csv", "name"});
  watch_flag(list, &all.list.watch);
  list->footer("Examples:\n  carve slice list\n  carve slice list --watch");
}

/// Which cluster, and in which of its namespaces Carve is installed.
void access_flags(CLI::App* app, ClusterOptions* cluster) {
  app->add_option("--kubeconfig", cluster->kubeconfig,
                  "how to reach the API server (default: the files of $KUBECONFIG, else ~/.kube/config)")
      ->type_name("FILE");
  app->add_option("--context", cluster->context, "context of the kubeconfig (default: the current one)")
      ->type_name("NAME");
  app->add_option("--carve-namespace", cluster->carve, "namespace where Carve is installed (default: carve-system)")
      ->type_name("NAME")
      ->check([](const std::string& value) {
        const bool name = !value.empty() && value.size() <= 63 &&
                          value.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
        return name ? std::string() : "\"" + value + "\" is not the name of a namespace";
      });
}

void cluster_commands(CLI::App& app, Everything& all) {
  auto* inspect = app.add_subcommand("inspect", "show cards, slices and free capacity of this machine or a cluster");
  host_flags(inspect, &all.inspect.host, false);
  output_flag(inspect, &all.cluster.output, {"text", "json", "yaml", "wide", "csv", "name", "gpushare"});
  inspect->add_flag("--cluster", all.cluster.wanted, "show the whole cluster; the default of `kubectl carve inspect`");
  watch_flag(inspect, &all.cluster.watch);
  inspect->add_flag("-d,--details", all.cluster.details, "with -o gpushare: one line per pod");
  access_flags(inspect, &all.cluster);
  inspect->add_option("NODE", all.cluster.name, "with --cluster: only the cards of this node");
  inspect->footer(
      "Examples:\n  carve inspect\n  carve inspect -o json\n  carve inspect --cluster -o wide\n"
      "  kubectl carve inspect n1\n  kubectl carve inspect -o gpushare -d          (the tables of `kubectl inspect "
      "gpushare -d`)");
  auto* explain = app.add_subcommand("explain", "show why a pod waits and what must change, or which cards it has");
  output_flag(explain, &all.explain.output, {"text", "json", "yaml"});
  watch_flag(explain, &all.explain.watch);
  access_flags(explain, &all.explain);
  explain->add_option("-n,--namespace", all.explain.namespace_name, "the pod's namespace")
      ->type_name("NAME")
      ->capture_default_str();
  explain->add_option("POD", all.explain.name, "name of the pod, or NAMESPACE/POD")->required();
  explain->footer(
      "Examples:\n  carve explain train-0\n  kubectl carve explain -n ml train-0\n  carve explain ml/train-0 -o json");
}

void manifest_commands(CLI::App& app, Everything& all) {
  const auto shared = [&](CLI::App* command) {
    command->add_option("FILE", all.manifests.files, "manifests: files, folders, or - for stdin")->required();
    command
        ->add_option("--cluster-config", all.manifests.cluster_config,
                     "the lines of ConfigMap carve-cluster, which select the dialects that are read (default: the "
                     "default settings)")
        ->type_name("FILE");
  };
  auto* lint = app.add_subcommand(
      "lint",
      "say what is wrong with manifests and what Carve gives to their containers; exit code 1 if anything is wrong");
  shared(lint);
  lint->footer("Examples:\n  carve lint pod.yaml\n  carve lint manifests/\n  helm template chart | carve lint -");
  auto* convert = app.add_subcommand(
      "convert",
      "print repaired manifests, and say on stderr what changed; exit code 1 if errors remain");
  shared(convert);
  convert
      ->add_option("--to", all.manifests.to,
                   "also rewrite requests for cards: native (elasticgpu.io/gpu-memory, …), claim (ElasticGPUClaims) or "
                   "dra (ResourceClaimTemplates)")
      ->type_name("SPELLING");
  convert->footer(
      "Examples:\n  carve convert old.yaml > new.yaml\n  carve convert --to native manifests/ | kubectl apply -f -");
}

void view_commands(CLI::App& app, Everything& all) {
  auto* top = app.add_subcommand("top", "show what each slice uses now: granted and used memory and compute");
  host_flags(top, &all.top.host, false);
  output_flag(top, &all.top.output, {"text", "json", "yaml", "csv"});
  top->add_option("--sort", all.top.sort,
                  std::string("one line per slice with its trend, sorted by ") + cli::kSortWords +
                      " (default: by card)")
      ->type_name("COLUMN")
      ->check([](const std::string& value) {
        cli::SortSlices sort{};
        return cli::sort_from(value, &sort)
                   ? std::string()
                   : "\"" + value + "\" is not a column; legal are " + std::string(cli::kSortWords);
      });
  top->add_option("--filter", all.top.filter,
                  "only slices with all these words in name, node, card or state; one line each")
      ->type_name("WORDS");
  top->add_flag("--cluster", all.top_of.wanted, "show the whole cluster; the default of `kubectl carve top`");
  access_flags(top, &all.top_of);
  top->add_option("NODE", all.top_of.name, "with --cluster: only the cards of this node");
  top->add_flag("--once", all.top.once, "print once and exit");
  top->add_option("--every", all.top.every, "time between two updates")
      ->type_name("TIME")
      ->capture_default_str();
  top->footer(
      "On a terminal, arrows and page keys scroll, and q ends.\n\n"
      "Examples:\n  carve top\n  carve top --once\n  carve top --once -o json\n  carve top --cluster --sort delivered\n"
      "  kubectl carve top n1 --once");
  auto* timeline =
      app.add_subcommand("timeline", "show what a card, a pod or a slice was promised and got in the past");
  host_flags(timeline, &all.timeline.host, false);
  output_flag(timeline, &all.timeline.output, {"text", "json", "yaml", "csv"});
  timeline->add_flag("--cluster", all.timeline.of.wanted,
                     "ask the agents of a cluster; the default of `kubectl carve timeline`");
  access_flags(timeline, &all.timeline.of);
  timeline->add_option("-n,--namespace", all.timeline.of.namespace_name, "the pod's namespace")
      ->type_name("NAME")
      ->capture_default_str();
  timeline->add_option("--since", all.timeline.since, "how far back: such as 15m, 24h or 30d (at most 31d)")
      ->type_name("TIME")
      ->capture_default_str();
  timeline->add_option("CARD|POD|SLICE", all.timeline.of.name,
                       "a card's UUID or its beginning, a pod, or a slice (default: all cards)");
  timeline->footer(
      "The agents record every 10 s for 25 hours, and every 5 minutes for 31 days.\n\nExamples:\n  carve timeline\n"
      "  carve timeline GPU-1cefb11b --since 24h\n  kubectl carve timeline -n ml train-0 --since 7d\n"
      "  kubectl carve timeline ml/train-0 -o csv");
  auto* report = app.add_subcommand(
      "report", "write an HTML file about use, waste and unhealthy cards, per namespace, of the past days");
  host_flags(report, &all.report.host, false);
  report->add_flag("--cluster", all.report.of.wanted,
                   "ask the agents of a cluster; the default of `kubectl carve report`");
  access_flags(report, &all.report.of);
  report->add_option("--since", all.report.since, "how far back: such as 24h or 7d (at most 31d)")
      ->type_name("TIME")
      ->capture_default_str();
  report->add_option("--file", all.report.file, "the HTML file to write")->type_name("FILE")->capture_default_str();
  report->add_option("--csv", all.report.csv, "also write the sums per namespace to this file")->type_name("FILE");
  report->footer("Examples:\n  carve report\n  kubectl carve report --since 30d --file gpus.html --csv gpus.csv");
  auto* dashboard = app.add_subcommand(
      "dashboard", "serve a web page with cards, slices, queue and history, for one person on a loopback address");
  host_flags(dashboard, &all.dashboard.host, false);
  dashboard->add_flag("--cluster", all.dashboard.of.wanted,
                      "show the whole cluster, with the rights of the kubeconfig; the default of `kubectl carve "
                      "dashboard`");
  access_flags(dashboard, &all.dashboard.of);
  dashboard->add_option("--listen", all.dashboard.listen, "loopback address and port; port 0: a free port")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  dashboard->add_option("--link-file", all.dashboard.link_file,
                        "write the link to this file, which only its owner can read, instead of the output")
      ->type_name("FILE");
  dashboard->footer(
      "Prints a link that works once. The page only reads.\n\nExamples:\n  carve dashboard\n"
      "  carve dashboard --listen 127.0.0.1:9000\n  kubectl carve dashboard");
  auto* doctor = app.add_subcommand(
      "doctor", "show what is wrong on this host, why, and how to fix it; exit code 1 if anything is wrong");
  host_flags(doctor, &all.doctor.host, true);
  output_flag(doctor, &all.doctor.output, {"text", "json", "yaml"});
  doctor->add_flag("--node", all.doctor.node,
                   "also check what a Kubernetes node needs: driver, engines, kubelet and container devices");
  doctor->add_flag("--cluster", all.doctor_of.wanted,
                   "check Carve in a whole cluster, from the API server; the default of `kubectl carve doctor`");
  access_flags(doctor, &all.doctor_of);
  doctor->footer(
      "Examples:\n  carve doctor\n  carve doctor --node\n  carve doctor --node --host-root /host -o json\n"
      "  carve doctor --cluster\n  kubectl carve doctor");
  auto* probe = app.add_subcommand("probe",
                                   "check that agent or arbiter answers, for probes of pods; exit code 1 if not");
  host_flags(probe, &all.probe.host, false);
  probe->add_option("PROCESS", all.probe.what, "agent or arbiter")->required()->check([](const std::string& value) {
    return value == "agent" || value == "arbiter"
               ? std::string()
               : "\"" + value + "\" is not a process that answers probes; legal are agent and arbiter";
  });
  probe->footer("Examples:\n  carve probe agent\n  carve probe arbiter");
  auto* version = app.add_subcommand("version", "print version, commit and page ABI");
  host_flags(version, &all.version.host, false);
  version->footer("Example:\n  carve version");
  auto* dialects = app.add_subcommand("dialects", "list the resource names that Carve reads, with their units");
  output_flag(dialects, &all.dialects_as, {"table", "markdown", "yaml"});
  dialects->footer(
      "Examples:\n  carve dialects\n  carve dialects -o yaml      what admission, scheduler and policies must name");
  auto* completion = app.add_subcommand("completion", "print a completion script: bash or zsh");
  completion->add_option("SHELL", all.shell, "bash or zsh")->required()->check([](const std::string& value) {
    return value == "bash" || value == "zsh"
               ? std::string()
               : "\"" + value + "\" is not a supported shell; legal are bash and zsh";
  });
  completion->footer("Examples:\n  carve completion bash > ~/.carve-completion\n  source <(carve completion zsh)");
}

}  // namespace

void add_commands(CLI::App& app, Everything& all) {
  server_commands(app, all);
  client_commands(app, all);
  control_command(app, all);
  cluster_commands(app, all);
  view_commands(app, all);
  manifest_commands(app, all);
}

}  // namespace carve::cmd
