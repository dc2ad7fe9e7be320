#include "adapter/cdi/cdi_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>

#include "abi/hello.h"
#include "adapter/process/text_file.h"

namespace carve {
namespace {

namespace json = boost::json;

constexpr char kPrefix[] = "carve-slice-";
// Where loaders of the usual images look; a mount makes the file where the image has none.
constexpr std::array<const char*, 3> kLibraryFolders = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                                                        "/usr/lib"};
constexpr std::array<const char*, 3> kCommonNodes = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                                     "/dev/nvidia-uvm-tools"};

json::value mount(const std::string& host, const std::string& inside) {
  return json::object{{"hostPath", host},
                      {"containerPath", inside},
                      {"options", json::array{"ro", "nosuid", "nodev", "rbind", "rprivate"}}};
}

void add_library(json::array& mounts, const std::string& file, const std::string& name,
                 const std::string& version) {
  for (const char* folder : kLibraryFolders) {
    const std::string base = std::string(folder) + "/" + name;
    mounts.push_back(mount(file, base));
    mounts.push_back(mount(file, base + ".1"));
    if (!version.empty()) mounts.push_back(mount(file, base + "." + version));
  }
}

json::array mounts_of(const SliceDevice& device, const std::string& host_root) {
  json::array mounts;
  const std::string& version = device.driver_version;
  const bool whole = device.whole;
  if (!device.driver.cuda.empty()) {
    add_library(mounts, whole ? device.driver.cuda : device.library_folder + "/libcarve-cuda.so",
                "libcuda.so", version);
  }
  add_library(mounts, whole ? device.driver.nvml : device.library_folder + "/libcarve-nvml.so",
              "libnvidia-ml.so", version);
  if (!whole) {
    const std::string folder = abi::kDriverFolder;
    if (!device.driver.cuda.empty()) mounts.push_back(mount(device.driver.cuda, folder + "/libcuda.so.1"));
    mounts.push_back(mount(device.driver.nvml, folder + "/libnvidia-ml.so.1"));
    mounts.push_back(mount(device.slice_folder, std::string(abi::kSlicesFolder) + "/" + device.id));
  }
  for (const auto& path : device.driver_mounts) {
    if (::access((host_root + path).c_str(), F_OK) == 0) mounts.push_back(mount(path, path));
  }
  return mounts;
}

}  // namespace

std::string CdiFiles::spec_of(const SliceDevice& device, const std::string& host_root) {
  json::array nodes;
  for (const int minor : device.minors) {
    nodes.push_back(json::object{{"path", "/dev/nvidia" + std::to_string(minor)}});
  }
  for (const char* path : kCommonNodes) {
    if (::access((host_root + path).c_str(), F_OK) == 0) nodes.push_back(json::object{{"path", path}});
  }
  json::object edits{{"env", json::array{"NVIDIA_VISIBLE_DEVICES=void"}},
                     {"deviceNodes", std::move(nodes)},
                     {"mounts", mounts_of(device, host_root)}};
  const json::object spec{
      {"cdiVersion", "0.3.0"},
      {"kind", kCdiKind},
      {"devices", json::array{json::object{{"name", device.id}, {"containerEdits", std::move(edits)}}}}};
  return json::serialize(spec) + "\n";
}

std::string CdiFiles::path_of(const std::string& id) const { return folder_ + "/" + kPrefix + id + ".json"; }

Result<void> CdiFiles::publish(const SliceDevice& device) {
  CARVE_TRY_VOID(make_folders(folder_, 0755));
  return replace_file(path_of(device.id), spec_of(device, host_root_), 0644);
}

Result<void> CdiFiles::withdraw(const std::string& id) {
  if (::unlink(path_of(id).c_str()) == 0 || errno == ENOENT) return {};
  return tl::unexpected(errno_error(errno, "remove " + path_of(id)));
}

Result<std::vector<std::string>> CdiFiles::list() {
  std::vector<std::string> ids;
  const auto names = list_folder(folder_);
  if (!names) return ids;  // no folder, no devices
  const std::string prefix = kPrefix;
  for (const auto& name : *names) {
    if (name.rfind(prefix, 0) != 0 || name.size() < prefix.size() + 5) continue;
    if (name.compare(name.size() - 5, 5, ".json") != 0) continue;
    ids.push_back(name.substr(prefix.size(), name.size() - prefix.size() - 5));
  }
  return ids;
}

}  // namespace carve
