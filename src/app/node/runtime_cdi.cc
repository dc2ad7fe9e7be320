#include "app/node/runtime_cdi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace carve::node {
namespace {

using Cdi = RuntimeVerdict::Cdi;

struct Version {
  int major = -1;
  int minor = 0;
};

Version version_of(std::string_view text) {
  if (text.starts_with("v")) text.remove_prefix(1);
  Version version;
  const std::string copy(text);
  char* end = nullptr;
  const long major = std::strtol(copy.c_str(), &end, 10);
  if (end == copy.c_str() || major < 0 || major > 9999) return version;
  version.major = static_cast<int>(major);
  if (*end == '.') version.minor = static_cast<int>(std::strtol(end + 1, nullptr, 10) % 10'000);
  return version;
}

bool older(Version version, int major, int minor) {
  return version.major < major || (version.major == major && version.minor < minor);
}

/// The folder in one spelling. /run and /var/run are the same folder on every host that Kubernetes runs on.
std::string plain_folder(std::string path) {
  if (path.starts_with("/var/run/")) path.erase(0, 4);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

RuntimeVerdict without(std::string reason, std::string message) {
  return {Cdi::kWithout, std::move(reason), std::move(message)};
}

RuntimeVerdict by_version(const std::string& name, const std::string& text) {
  const auto version = version_of(text);
  const auto runtime = name + " " + text;
  const bool containerd = name == "containerd";
  if ((!containerd && name != "cri-o") || version.major < 0)
    return {Cdi::kUnknown, "RuntimeNotKnown",
            fmt::format(
                "it is not known whether {} injects CDI devices; containerd 1.7 and CRI-O 1.24 and "
                "later do",
                runtime)};
  if (older(version, 1, containerd ? 7 : 24)) {
    return without(
        "RuntimeTooOld",
        fmt::format("{} does not support CDI devices, so no container would get its slice; update it to "
                    "{} or later",
                    runtime, containerd ? "containerd 2.0" : "CRI-O 1.24"));
  }
  if (containerd && version.major < 2) {
    return {Cdi::kUnknown, "RuntimeCDINotReported",
            fmt::format(
                "{} injects CDI devices only with enable_cdi = true in its configuration, which the agent "
                "cannot read because the runtime does not answer",
                runtime)};
  }
  return {Cdi::kWith, "RuntimeWithCDI", runtime + " injects CDI devices"};
}

}  // namespace

RuntimeVerdict judge_runtime(const Result<RuntimeFacts>& facts, const std::string& node_runtime,
                             const std::string& cdi_dir) {
  std::string name;
  std::string version;
  if (facts) {
    name = facts->name;
    version = facts->version;
  } else if (const auto colon = node_runtime.find("://"); colon != std::string::npos) {
    name = node_runtime.substr(0, colon);
    version = node_runtime.substr(colon + 3);
  } else {
    return {Cdi::kUnknown, "RuntimeNotAsked",
            "the container runtime does not answer: " + facts.error().what};
  }
  if (facts && facts->cdi && !*facts->cdi) {
    return without(
        "DisabledInConfiguration",
        fmt::format("{} {} has CDI devices disabled, so no container would get its slice; set "
                    "enable_cdi = true in its configuration and restart it",
                    name, version));
  }
  if (facts && !facts->cdi_dirs.empty()) {
    const bool looks = std::any_of(
        facts->cdi_dirs.begin(), facts->cdi_dirs.end(),
        [&](const std::string& dir) { return plain_folder(dir) == plain_folder(cdi_dir); });
    if (!looks) {
      return without(
          "OtherFolders",
          fmt::format("{} {} reads CDI files from {}, but the agent writes them to {}; add that "
                      "folder to cdi_spec_dirs in its configuration, or change the agent's --cdi-dir",
                      name, version, fmt::join(facts->cdi_dirs, ", "), cdi_dir));
    }
  }
  if (facts && facts->cdi)
    return {Cdi::kWith, "RuntimeWithCDI", name + " " + version + " injects CDI devices"};
  return by_version(name, version);
}

}  // namespace carve::node
