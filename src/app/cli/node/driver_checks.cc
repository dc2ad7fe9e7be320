#include <fmt/format.h>

#include <algorithm>

#include "app/cli/cells.h"
#include "app/cli/node/node_checks.h"

// The vendor's kernel module and library: each exists once, both have the same version, and the module is built for
// this kernel.
namespace carve::cli {
namespace {

std::string first_line(const std::optional<std::string>& text) {
  return text ? text->substr(0, text->find('\n')) : std::string();
}

bool starts(const std::string& text, std::string_view with) { return text.rfind(with, 0) == 0; }

/// NVIDIA's display and 3D controllers on the PCI bus.
std::size_t cards_on_the_bus(NodeLook& look) {
  std::size_t cards = 0;
  const std::string bus = "/sys/bus/pci/devices/";
  for (const auto& device : look.list(bus)) {
    const auto vendor = first_line(look.read(bus + device + "/vendor"));
    const auto kind = first_line(look.read(bus + device + "/class"));
    cards += vendor == "0x10de" && starts(kind, "0x03") ? 1 : 0;
  }
  return cards;
}

/// Every nvidia.ko that modprobe could load into this kernel.
std::vector<std::string> built_modules(NodeLook& look, const std::string& kernel) {
  std::vector<std::string> modules;
  const std::string root = "/lib/modules/" + kernel + "/";
  for (const char* folder :
       {"updates/dkms", "updates", "extra", "extra/nvidia", "weak-updates/nvidia",
        "kernel/drivers/video", "kernel/drivers/video/nvidia"}) {
    for (const auto& name : look.list(root + folder)) {
      if (name == "nvidia.ko" || starts(name, "nvidia.ko."))
        modules.push_back(std::string(folder) + "/" + name);
    }
  }
  return modules;
}

void check_module(NodeLook& look, const std::string& kernel, bool loaded) {
  const auto modules = built_modules(look, kernel);
  if (modules.size() > 1) {
    look.found({Severity::kError, "two packages install the kernel module nvidia",
                joined(modules) + " under /lib/modules/" + kernel,
                "keep one source of the driver (dkms or the distribution's kmod package) and "
                "remove the other",
                "driver-two-modules"});
  }
  if (loaded) return;
  std::vector<std::string> sources;
  for (const auto& name : look.list("/var/lib/dkms")) {
    if (starts(name, "nvidia")) sources.push_back(name);
  }
  if (!sources.empty() && modules.empty() && look.is_absent("/lib/modules/" + kernel + "/build")) {
    std::vector<std::string> headers;
    for (const char* folder : {"/usr/src", "/usr/src/kernels"}) {
      for (const auto& name : look.list(folder)) {
        if (starts(name, "linux-headers-") || folder == std::string_view("/usr/src/kernels"))
          headers.push_back(name);
      }
    }
    look.found({Severity::kError, "the driver cannot be built: the headers of this kernel are not installed",
                fmt::format("the kernel is {}, the installed headers: {}", kernel,
                            headers.empty() ? "missing" : joined(headers)),
                "install the headers of exactly this kernel (linux-headers-" + kernel + ", kernel-devel-" + kernel +
                    "), then dkms autoinstall",
                "kernel-headers"});
  }
  if (const auto cards = cards_on_the_bus(look); cards > 0) {
    look.found(
        {Severity::kError, "the driver is not loaded",
         fmt::format("{} NVIDIA card(s) on the PCI bus, but /sys/module/nvidia does not exist: the node offers no "
                     "nvidia.com/gpu and no fraction of a card",
                     cards),
         "modprobe nvidia nvidia-uvm; if it fails, `dmesg | grep -i nvidia` says why", "driver-not-loaded"});
  }
}

/// Reports a libnvidia-ml.so.<version> of another version than the kernel module's.
void check_versions(NodeLook& look, const std::string& kernel_side) {
  std::vector<std::string> versions;
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/x86_64-linux-gnu/nvidia/current",
        "/usr/lib/aarch64-linux-gnu", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"}) {
    for (const auto& name : look.list(folder)) {
      constexpr std::string_view kPrefix = "libnvidia-ml.so.";
      if (!starts(name, kPrefix)) continue;
      const auto version = name.substr(kPrefix.size());
      if (version.find('.') != std::string::npos) versions.push_back(version);
    }
  }
  if (versions.empty() ||
      std::find(versions.begin(), versions.end(), kernel_side) != versions.end())
    return;
  look.found({Severity::kError, "the driver's library and kernel module have different versions",
              fmt::format("the module is {}, the library {}: NVML reports \"Driver/library version mismatch\"",
                          kernel_side, joined(versions)),
              "the package was upgraded while the driver was loaded: drain the node and reboot it, or unload and load "
              "the nvidia modules",
              "driver-version-mismatch"});
}

}  // namespace

void check_driver(NodeLook& look) {
  const auto kernel = first_line(look.read("/proc/sys/kernel/osrelease"));
  const auto version = first_line(look.read("/sys/module/nvidia/version"));
  const bool loaded = !look.is_absent("/sys/module/nvidia");
  if (!kernel.empty()) check_module(look, kernel, loaded);
  if (!version.empty()) check_versions(look, version);
}

void check_device_nodes(NodeLook& look) {
  if (look.kind("/proc/driver/nvidia/version") != FileKind::kFile) return;
  std::vector<std::string> wanted = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
  const std::string cards = "/proc/driver/nvidia/gpus";
  for (const auto& card : look.list(cards)) {
    const auto text = look.read(cards + "/" + card + "/information");
    const auto at = text ? text->find("Device Minor:") : std::string::npos;
    if (at == std::string::npos) continue;
    const auto digit = text->find_first_of("0123456789", at);
    if (digit == std::string::npos) continue;
    wanted.push_back("/dev/nvidia" +
                     text->substr(digit, text->find_first_not_of("0123456789", digit) - digit));
  }
  for (const auto& path : wanted) {
    const auto kind = look.kind(path);
    if (!kind || *kind == FileKind::kCharDevice) continue;
    look.found({Severity::kError, "device node " + path + " is missing",
                "the driver is loaded, but no program has created its device nodes yet: the first workload fails",
                "create it with `nvidia-modprobe -c0 -u`, or run `nvidia-smi` as root once", "device-node-missing"});
  }
}

}  // namespace carve::cli
