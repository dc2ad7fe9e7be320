#include "adapter/cdi/cdi_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <set>
#include <string_view>

#include "abi/hello.h"
#include "adapter/cdi/device_nodes.h"
#include "adapter/cdi/private_folder.h"
#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

namespace json = boost::json;

constexpr char kPrefix[] = "carve-slice-";
constexpr char kSuffix[] = ".json";
// The library folders of the loaders in common images. A mount creates the file if the image does not have it.
constexpr std::array<const char*, 3> kLibraryFolders = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                                                        "/usr/lib"};
constexpr std::array<const char*, 3> kCommonNodes = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                                     "/dev/nvidia-uvm-tools"};

// Of two mounts at one path, the last one wins, in a spec and in a container with several devices. Each path is added
// once.
class Mounts {
 public:
  void add(const std::string& host, const std::string& inside) {
    if (!places_.insert(inside).second) return;
    mounts_.push_back(json::object{{"hostPath", host},
                                   {"containerPath", inside},
                                   {"options", json::array{"ro", "nosuid", "nodev", "rbind", "rprivate"}}});
  }
  void add_library(const std::string& file, const std::string& name) {
    for (const char* folder : kLibraryFolders) add(file, std::string(folder) + "/" + name);
  }
  /// Adds the library under the three names that the driver's file has: .so, .so.1 and .so.<version>.
  void add_front(const std::string& file, const std::string& name, const std::string& version) {
    add_library(file, name);
    add_library(file, name + ".1");
    if (!version.empty()) add_library(file, name + "." + version);
  }
  [[nodiscard]] json::array take() { return std::move(mounts_); }

 private:
  json::array mounts_;
  std::set<std::string> places_;
};

bool is_given(cdi::DriverUse use, const CdiOptions& options) {
  return use == cdi::DriverUse::kCompute || use == cdi::DriverUse::kUtility ||
         std::find(options.uses.begin(), options.uses.end(), use) != options.uses.end();
}

void add_installation(Mounts& mounts, const SliceDevice& device, const CdiOptions& options,
                      const cdi::DriverInstallation& all) {
  for (const auto& library : all.libraries) {
    if (!is_given(library.use, options)) continue;
    for (const auto& name : library.names) mounts.add_library(library.path, name);
  }
  for (const auto& program : all.programs) mounts.add(program, "/usr/bin" + program.substr(program.rfind('/')));
  if (!device.whole) return;  // the daemons act on whole cards
  for (const auto& socket : all.sockets) mounts.add(socket, socket);
}

// /proc/driver/nvidia stays as it is on the host: a container can read model, bus id and firmware of every card of the
// node there, but it can open none of the cards. A container device cannot cover this folder: runtimes refuse every
// mount below /proc except for a few files of lxcfs ("cannot be mounted because it is inside /proc", tried with
// runc 1.1.5), and CDI has no masked paths. NVIDIA's tools cover the folder in their hook; Carve's hook does not.
//   source  opencontainers/runc libcontainer/rootfs_linux.go checkProcMount; nvidia-container-toolkit, its hooks
json::array mounts_of(const SliceDevice& device, const CdiOptions& options,
                      const cdi::DriverInstallation& installed) {
  Mounts mounts;
  const std::string& version = device.driver_version;
  const bool whole = device.whole;
  if (!device.driver.cuda.empty()) {
    mounts.add_front(whole ? device.driver.cuda : device.library_folder + "/libcarve-cuda.so", "libcuda.so", version);
  }
  mounts.add_front(whole ? device.driver.nvml : device.library_folder + "/libcarve-nvml.so", "libnvidia-ml.so",
                   version);
  if (!whole) {
    const std::string folder = abi::kDriverFolder;
    if (!device.driver.cuda.empty()) mounts.add(device.driver.cuda, folder + "/libcuda.so.1");
    mounts.add(device.driver.nvml, folder + "/libnvidia-ml.so.1");
  }
  mounts.add(device.slice_folder, std::string(abi::kSlicesFolder) + "/" + device.id);
  add_installation(mounts, device, options, installed);
  for (const auto& path : device.driver_mounts) {
    if (::access((options.host_root + path).c_str(), F_OK) == 0) mounts.add(path, path);
  }
  return mounts.take();
}

/// True for the names that the loader searches: libcuda.so, libcuda.so.1; not libcuda.so.580.65.06.
bool is_loader_name(const std::string& name) {
  const auto at = name.find(".so");
  if (at == std::string::npos) return false;
  const std::string rest = name.substr(at + 3);
  return rest.empty() || (rest.size() > 1 && rest.front() == '.' &&
                          rest.find_first_not_of("0123456789", 1) == std::string::npos);
}

/// Programs that search the driver with `ldconfig -p` (Triton, ctypes.util.find_library) find only libraries in the
/// loader's cache, and the image's cache was written before the libraries were mounted. A hook adds them, if this build
/// contains the hook.
///   source  OCI runtime specification, "createContainer Hooks": the runtime executes them in the namespaces of the
///           container, by a path of the host
json::array hooks_of(const SliceDevice& device, const CdiOptions& options, const json::array& mounts) {
  const std::string program = device.library_folder + "/carve-hook";
  if (device.library_folder.empty() || ::access((options.host_root + program).c_str(), X_OK) != 0) return {};
  json::array arguments{"carve-hook", "loader-cache"};
  const std::string folder = std::string(kLibraryFolders.front()) + "/";
  for (const auto& mount : mounts) {
    const auto& text = mount.at("containerPath").as_string();
    const std::string inside(text.data(), text.size());
    if (inside.rfind(folder, 0) == 0 && is_loader_name(inside.substr(folder.size()))) arguments.push_back(text);
  }
  return {json::object{{"hookName", "createContainer"}, {"path", program}, {"args", std::move(arguments)}}};
}

json::array environment_of(const SliceDevice& device, const CdiOptions& options) {
  json::array environment{"NVIDIA_VISIBLE_DEVICES=void"};
  for (const auto& [key, value] : device.environment) environment.push_back(json::string(key + "=" + value));
  if (device.whole || options.uses.empty()) return environment;
  std::string words;
  for (const auto use : options.uses) words += (words.empty() ? "" : ",") + std::string(cdi::to_string(use));
  // For a person who inspects the container; no program reads it.
  environment.push_back(json::string("CARVE_SECOND_LINE_ONLY=" + words));
  return environment;
}

/// The slice ID of a spec file, or of the temporary file that a dead writer left ("<name>.<pid>.tmp", see
/// replace_file); empty: the file is not Carve's.
std::string id_in(const std::string& file) {
  const std::string_view prefix = kPrefix;
  const auto end = file.find(kSuffix);
  if (file.rfind(prefix, 0) != 0 || end == std::string::npos || end <= prefix.size()) return {};
  const std::string rest = file.substr(end + std::string_view(kSuffix).size());
  const bool half = rest.size() > 4 && rest.front() == '.' && rest.compare(rest.size() - 4, 4, ".tmp") == 0;
  return rest.empty() || half ? file.substr(prefix.size(), end - prefix.size()) : std::string();
}

/// The lowest CDI version that has all features that the spec uses.
///   source  CDI specification, section "Released versions": names that begin with a digit, and hostPath of device
///           nodes, since 0.5.0
const char* version_for(const SliceDevice& device) {
  const std::string& name = device.id;
  const bool digit = !name.empty() && name.front() >= '0' && name.front() <= '9';
  return digit || !device.card_files.empty() ? "0.5.0" : "0.3.0";
}

/// The slice's own node if it has one: the user of the container can open it, also when the engine copies the mode of
/// the host's file (Docker), or mounts it with the rights of its own user (rootless).
json::object card_node(const SliceDevice& device, int minor) {
  const std::string name = "/nvidia" + std::to_string(minor);
  json::object node{{"path", "/dev" + name}};
  if (!device.card_files.empty()) node["hostPath"] = device.card_files + name;
  return node;
}

}  // namespace

std::string CdiFiles::spec_of(const SliceDevice& device, const CdiOptions& options,
                              const cdi::DriverInstallation& installed) {
  // The nodes have no mode: runc and crun create such nodes with 0666, and CDI gives them to the container's user. So
  // no container needs the host's group for them (additionalGids), regardless of the mode of the host's own nodes.
  json::array nodes;
  for (const int minor : device.minors) {
    nodes.push_back(card_node(device, minor));
  }
  for (const char* path : kCommonNodes) {
    if (::access((options.host_root + path).c_str(), F_OK) == 0) nodes.push_back(json::object{{"path", path}});
  }
  auto mounts = mounts_of(device, options, installed);
  auto hooks = hooks_of(device, options, mounts);
  json::object edits{{"env", environment_of(device, options)},
                     {"deviceNodes", std::move(nodes)},
                     {"mounts", std::move(mounts)}};
  if (!hooks.empty()) edits["hooks"] = std::move(hooks);
  const json::object spec{
      {"cdiVersion", version_for(device)},
      {"kind", kCdiKind},
      {"devices", json::array{json::object{{"name", device.id}, {"containerEdits", std::move(edits)}}}}};
  return json::serialize(spec) + "\n";
}

cdi::DriverInstallation CdiFiles::installed(const SliceDevice& device) {
  struct stat folder = {};
  const std::string& file = device.driver.nvml;
  static_cast<void>(::stat((options_.host_root + file.substr(0, file.rfind('/'))).c_str(), &folder));
  // The installation of a driver changes its folder; the key therefore contains the folder's inode and mtime.
  const std::string key = file + " " + device.driver_version + " " + std::to_string(folder.st_ino) + " " +
                          std::to_string(folder.st_mtim.tv_sec) + "." + std::to_string(folder.st_mtim.tv_nsec);
  const MutexLock lock(mutex_);
  if (key != seen_key_) {
    seen_ = cdi::find_driver_files(device.driver, device.driver_version, options_.host_root);
    seen_key_ = key;
  }
  return seen_;
}

std::string CdiFiles::path_of(const std::string& id) const { return options_.folder + "/" + kPrefix + id + kSuffix; }

Result<void> CdiFiles::publish(const SliceDevice& device) {
  CARVE_TRY_VOID(process::make_folders(options_.folder, 0755));
  CARVE_TRY(const auto made, cdi::make_missing_nodes(options_.host_root, device.minors));
  static_cast<void>(made);
  if (device.whole && !options_.marks.empty())
    CARVE_TRY_VOID(process::make_folders(options_.marks + "/" + device.id, 0555));
  if (!device.private_folder.empty() && device.user != 0) {
    CARVE_TRY_VOID(cdi::allow_through(device.private_folder, device.user));
  }
  const std::string text = spec_of(device, options_, installed(device));
  const std::string path = path_of(device.id);
  // The file is unchanged: do not write it, so that a restart of the agent does not make runtimes read the folder
  // again.
  if (const auto before = process::read_text(path, text.size() + 1); before && *before == text) return {};
  CARVE_TRY_VOID(process::replace_file(path, text, 0644));
  const auto there = process::read_text(path, text.size() + 1);
  if (there && *there == text) return {};
  // An incomplete device is worse than none, because the runtime would start the container with it.
  ::unlink(path.c_str());
  return fail(Code::kDataLoss, path + ": the file does not contain what was written to it");
}

Result<void> CdiFiles::withdraw(const std::string& id) {
  // A container that has the mark mounted keeps seeing it until its last process has ended.
  if (!options_.marks.empty()) ::rmdir((options_.marks + "/" + id).c_str());
  if (::unlink(path_of(id).c_str()) != 0 && errno != ENOENT) {
    return tl::unexpected(errno_error(errno, "remove " + path_of(id)));
  }
  const auto names = process::list_folder(options_.folder);
  for (const auto& name : names ? *names : std::vector<std::string>()) {
    if (id_in(name) == id) ::unlink((options_.folder + "/" + name).c_str());
  }
  return {};
}

Result<std::vector<std::string>> CdiFiles::list() {
  std::set<std::string> ids;
  const auto names = process::list_folder(options_.folder);  // no folder: no devices
  for (const auto& name : names ? *names : std::vector<std::string>()) {
    if (auto id = id_in(name); !id.empty()) ids.insert(std::move(id));
  }
  return std::vector<std::string>(ids.begin(), ids.end());
}

}  // namespace carve::cdi
