#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/cli/node/node_checks.h"
#include "codec/host/cdi_spec.h"

// Container devices (CDI): every file can be read, the paths in it exist, and no device is defined twice.
namespace carve::cli {
namespace {

constexpr char kOurKind[] = "carve.elasticgpu.io/slice";

bool is_spec(const std::string& name) {
  for (const char* end : {".json", ".yaml"}) {
    const std::string_view suffix = end;
    if (name.size() > suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
      return true;
  }
  return false;
}

/// Device → file, for the files of one folder.
using Devices = std::map<std::string, std::string>;

void check_paths(NodeLook& look, const std::string& file, const codec::CdiSpec& spec) {
  std::string missing;
  std::size_t count = 0;
  for (const auto& path : spec.host_paths) {
    if (!look.is_absent(path)) continue;
    if (++count == 1) missing = path;
  }
  if (count == 0) return;
  look.found(
      {Severity::kError, "a container device names files that do not exist",
       fmt::format("{} ({}) names {}{}: a container with this device cannot start", file, spec.kind, missing,
                   count > 1 ? fmt::format(" and {} more", count - 1) : ""),
       spec.kind == kOurKind
           ? "delete its pod, or delete the slice with `carve slice delete`: the slice was created with another driver "
             "or library version"
           : "the driver was upgraded after the file was written: write it again (nvidia-ctk cdi generate), or remove "
             "it",
       "cdi-stale"});
}

Devices check_folder(NodeLook& look, const std::string& folder) {
  Devices devices;
  for (const auto& name : look.list(folder)) {
    if (!is_spec(name)) continue;
    const std::string file = folder + "/" + name;
    const auto text = look.read(file);
    if (!text) continue;
    const auto spec = codec::parse_cdi_spec(*text);
    if (!spec) {
      look.found({Severity::kError, "a container device file cannot be read: " + file, spec.error().what,
                  "repair or remove it: no container can use its devices", "cdi-unreadable"});
      continue;
    }
    check_paths(look, file, *spec);
    for (const auto& device : spec->devices) {
      const auto full = spec->kind + "=" + device;
      const auto [there, fresh] = devices.emplace(full, file);
      if (fresh) continue;
      look.found({Severity::kError, "two files define the same container device",
                  fmt::format("{} and {} define {}: no container can use it", there->second, file, full),
                  "remove one of the files", "cdi-conflict"});
    }
  }
  return devices;
}

/// Every slice of the agent needs a container device, and every container device of Carve needs a slice.
void check_ours(NodeLook& look, const Devices& devices) {
  if (!look.view()) return;
  const std::string prefix = std::string(kOurKind) + "=";
  for (const auto& slice : look.view()->slices) {
    if (slice.kind == "run" || slice.state == "ending" || devices.count(prefix + slice.id) != 0)
      continue;
    look.found({Severity::kError, "slice " + slice.id + " has no container device",
                "/var/run/cdi has no file for it: its container cannot restart",
                "restart the agent, which writes the file again; find the program that removes files from /var/run/cdi",
                "cdi-missing"});
  }
  for (const auto& [device, file] : devices) {
    if (device.rfind(prefix, 0) != 0) continue;
    const auto id = device.substr(prefix.size());
    const auto& slices = look.view()->slices;
    if (std::any_of(slices.begin(), slices.end(),
                    [&](const SliceView& slice) { return slice.id == id; }))
      continue;
    look.found({Severity::kWarning, "a container device belongs to a slice that no longer exists: " + file,
                "the agent has no slice " + id, "remove the file, or restart the agent, which removes it",
                "cdi-leftover"});
  }
}

}  // namespace

void check_container_devices(NodeLook& look) {
  check_folder(look, "/etc/cdi");
  check_ours(look, check_folder(look, "/var/run/cdi"));
}

}  // namespace carve::cli
