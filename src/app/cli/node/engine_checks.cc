#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "app/cli/node/node_checks.h"
#include "codec/host/engine_config.h"

// Container engines: whether they support CDI, and whether a container that requests no card sees every card.
namespace carve::cli {
namespace {

using Packages = std::map<std::string, std::string>;  // name → version
using Settings = std::map<std::string, std::string>;

constexpr char kNvidiaConfig[] = "/etc/nvidia-container-runtime/config.toml";

/// True when NVIDIA's runtime gives cards to every container that sets NVIDIA_VISIBLE_DEVICES, also by its image.
bool environment_is_believed(NodeLook& look) {
  const auto text = look.read(kNvidiaConfig);
  if (!text) return true;  // its default
  const auto settings = codec::toml_settings(*text);
  const auto found = settings.find("accept-nvidia-visible-devices-envvar-when-unprivileged");
  return found == settings.end() || found->second != "false";
}

void report_default_access(NodeLook& look, const std::string& engine) {
  if (!environment_is_believed(look)) return;
  look.found({Severity::kError, "a container that requests no card sees all cards",
              engine + " has NVIDIA's runtime as its default runtime, and that obeys NVIDIA_VISIBLE_DEVICES of any "
                       "image",
              fmt::format("set runc as the default runtime (Carve needs no other), or set "
                          "accept-nvidia-visible-devices-envvar-when-unprivileged = false in {}",
                          kNvidiaConfig),
              "everybody-sees-all"});
}

void check_docker(NodeLook& look) {
  const auto text = look.read("/etc/docker/daemon.json");
  if (!text) return;
  const auto config = codec::parse_docker_config(*text);
  if (!config) {
    look.found({Severity::kError, "/etc/docker/daemon.json cannot be parsed: Docker will not start",
                config.error().what, "correct the file (jq . /etc/docker/daemon.json shows the error)",
                "docker-config"});
    return;
  }
  if (config->default_runtime == "nvidia") {
    report_default_access(look, "Docker");
    return;
  }
  const bool nvidia = std::find(config->runtimes.begin(), config->runtimes.end(), "nvidia") !=
                      config->runtimes.end();
  if (nvidia && config->cdi != true) {
    look.found(
        {Severity::kWarning, "Docker's containers have no driver unless they request NVIDIA's runtime",
         "daemon.json names the runtime nvidia, but default-runtime is another one and features.cdi is not true: "
         "programs fail with \"Failed to initialize NVML: could not load NVML library\"",
         "set \"features\": {\"cdi\": true} in /etc/docker/daemon.json and start containers with the --device "
         "that `carve slice create` prints; or start each container with --runtime=nvidia",
         "docker-no-driver"});
  }
}

/// nvidia-docker2 "2.0.3+docker18.09.0-1" works with docker-ce 18.09.0 only.
void check_docker_package(NodeLook& look, const Packages& packages) {
  const auto wrapper = packages.find("nvidia-docker2");
  const auto docker = packages.find("docker-ce");
  if (wrapper == packages.end() || docker == packages.end()) return;
  const auto at = wrapper->second.find("docker");
  if (at == std::string::npos) return;
  const auto wanted = wrapper->second.substr(at + 6, wrapper->second.find('-', at) - at - 6);
  if (wanted.empty() || docker->second.find(wanted) != std::string::npos) return;
  look.found({Severity::kError, "nvidia-docker2 needs another version of Docker",
              fmt::format("nvidia-docker2 {} needs docker-ce {}; docker-ce {} is installed", wrapper->second, wanted,
                          docker->second),
              "install the matching pair, or remove nvidia-docker2: Carve does not need NVIDIA's runtime",
              "docker-package"});
}

void merge(Settings* settings, const std::string& text) {
  for (auto& [key, value] : codec::toml_settings(text)) (*settings)[key] = value;
}

/// Merges the files in `folder` with names that end with `suffix`, in the order of the names.
void merge_folder(NodeLook& look, const std::string& folder, std::string_view suffix,
                  Settings* settings) {
  for (const auto& name : look.list(folder)) {
    if (name.size() <= suffix.size() ||
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
      continue;
    if (const auto text = look.read(folder + "/" + name)) merge(settings, *text);
  }
}

/// The settings in containerd's configuration file and the files that it imports; nullopt: the file does not exist.
std::optional<Settings> containerd_settings(NodeLook& look) {
  const auto text = look.read("/etc/containerd/config.toml");
  if (!text) return std::nullopt;
  Settings settings;
  merge(&settings, *text);
  std::string imports = settings["imports"];
  for (auto quote = imports.find_first_of("\"'"); quote != std::string::npos;
       quote = imports.find_first_of("\"'")) {
    const auto end = imports.find(imports[quote], quote + 1);
    if (end == std::string::npos) break;
    const auto path = imports.substr(quote + 1, end - quote - 1);
    imports.erase(0, end + 1);
    if (const auto star = path.find("/*"); star != std::string::npos) {
      merge_folder(look, path.substr(0, star), ".toml", &settings);
    } else if (const auto more = look.read(path)) {
      merge(&settings, *more);
    }
  }
  return settings;
}

std::string setting(const Settings& settings, const char* name) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::string() : found->second;
}

/// "1.7.22-1" → 1, 7; nullopt: containerd was not installed by dpkg.
std::optional<std::pair<int, int>> containerd_version(const Packages& packages) {
  for (const char* name : {"containerd", "containerd.io"}) {
    const auto found = packages.find(name);
    int major = 0;
    int minor = 0;
    if (found != packages.end() && std::sscanf(found->second.c_str(), "%d.%d", &major, &minor) == 2)
      return std::pair(major, minor);
  }
  return std::nullopt;
}

void check_folders(NodeLook& look, const std::string& engine, const Settings& settings) {
  const auto folders = setting(settings, "cdi_spec_dirs");
  if (folders.empty() || folders.find("/run/cdi") != std::string::npos) return;
  look.found({Severity::kError, engine + " does not read container devices from /var/run/cdi",
              "cdi_spec_dirs = " + folders + " does not contain /var/run/cdi",
              "add \"/var/run/cdi\" to cdi_spec_dirs and restart " + engine, "cdi-folders"});
}

void check_containerd(NodeLook& look, const std::optional<Settings>& settings, const Packages& packages) {
  if (!settings) return;
  const auto cdi = setting(*settings, "enable_cdi");
  const auto version = containerd_version(packages);
  const bool off_unless_said = version && version->first < 2;
  if (cdi == "false" || (off_unless_said && cdi != "true")) {
    look.found({Severity::kError, "containerd has container devices (CDI) disabled",
                cdi == "false" ? "enable_cdi = false in its configuration: no container with a slice can start"
                               : fmt::format("containerd {}.{} enables them only with enable_cdi = true",
                                             version->first, version->second),
                "set enable_cdi = true in the CRI plugin's table of /etc/containerd/config.toml (containerd 1.7 or "
                "later; the default since 2.0), then systemctl restart containerd",
                "containerd-cdi-off"});
  }
  check_folders(look, "containerd", *settings);
  if (setting(*settings, "default_runtime_name") == "nvidia") report_default_access(look, "containerd");
}

void check_crio(NodeLook& look) {
  Settings settings;
  if (const auto text = look.read("/etc/crio/crio.conf")) merge(&settings, *text);
  merge_folder(look, "/etc/crio/crio.conf.d", ".conf", &settings);
  check_folders(look, "CRI-O", settings);
  if (setting(settings, "default_runtime") == "nvidia") report_default_access(look, "CRI-O");
}

/// After `systemctl daemon-reload`, systemd writes the device rules of its scopes again. It resolves devices by the
/// links in /dev/char.
void check_char_links(NodeLook& look, const std::optional<Settings>& containerd) {
  const bool runtime_of_nvidia = look.kind(kNvidiaConfig) == FileKind::kFile;
  const bool systemd = containerd && setting(*containerd, "SystemdCgroup") == "true";
  if (!runtime_of_nvidia || !systemd) return;
  std::string missing;
  for (const auto& name : look.list("/dev")) {
    if (name.rfind("nvidia", 0) != 0) continue;
    const auto node = look.facts("/dev/" + name);
    if (!node || node->kind != FileKind::kCharDevice) continue;
    const auto link = fmt::format("/dev/char/{}:{}", node->major, node->minor);
    if (look.is_absent(link)) missing += (missing.empty() ? "" : ", ") + link;
  }
  if (missing.empty()) return;
  look.found({Severity::kWarning, "containers of NVIDIA's runtime lose their cards at `systemctl daemon-reload`",
              "\"NVML: Unknown Error\": systemd removes the permission for devices without a link: " + missing,
              "use container devices (CDI), like Carve (its containers are not affected), or create the links: "
              "nvidia-ctk system create-dev-char-symlinks --create-all",
              "char-links"});
}

}  // namespace

void check_engines(NodeLook& look) {
  check_docker(look);
  const auto status = look.read("/var/lib/dpkg/status");
  const Packages packages = status ? codec::installed_packages(*status) : Packages();
  check_docker_package(look, packages);
  const auto containerd = containerd_settings(look);
  check_containerd(look, containerd, packages);
  check_crio(look);
  check_char_links(look, containerd);
}

}  // namespace carve::cli
