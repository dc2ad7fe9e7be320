#include "app/cli/node/node_checks.h"

namespace carve::cli {

std::optional<std::string> NodeLook::read(const std::string& path) {
  auto text = files_.read(path);
  if (text) return *text;
  if (text.error().code != Code::kNotFound) not_looked_at(path, text.error());
  return std::nullopt;
}

std::vector<std::string> NodeLook::list(const std::string& folder) {
  auto names = files_.list(folder);
  if (names) return *names;
  if (names.error().code != Code::kNotFound) not_looked_at(folder, names.error());
  return {};
}

std::optional<FileKind> NodeLook::kind(const std::string& path) {
  const auto seen = facts(path);
  return seen ? std::optional(seen->kind) : std::nullopt;
}

std::optional<FileFacts> NodeLook::facts(const std::string& path) {
  auto facts = files_.facts(path);
  if (facts) return *facts;
  not_looked_at(path, facts.error());
  return std::nullopt;
}

void NodeLook::not_looked_at(const std::string& path, const Error& error) {
  found({Severity::kWarning, path + " was not checked", error.what,
         "run the doctor as root, or as a Job that mounts the host's / (deploy/jobs/doctor.yaml)", "not-looked-at"});
}

std::vector<Finding> check_node(const HostFiles& files, const std::optional<AgentView>& view) {
  std::vector<Finding> findings;
  NodeLook look(files, view, &findings);
  if (!look.read("/proc/sys/kernel/osrelease")) {
    // An empty folder would pass all checks below.
    look.found({Severity::kError, "the host's root folder is not mounted here",
                "/proc/sys/kernel/osrelease does not exist",
                "mount the host's / with everything below it (hostPath /, mountPropagation HostToContainer), and name "
                "the mount with --host-root",
                "host-not-seen"});
    return findings;
  }
  check_driver(look);
  check_device_nodes(look);
  check_engines(look);
  check_kubelet(look);
  check_container_devices(look);
  return findings;
}

}  // namespace carve::cli
