#include "adapter/mountns/enclosure.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>

#include "abi/hello.h"
#include "adapter/mountns/library_store.h"
#include "adapter/mountns/mounts.h"
#include "adapter/process/text_file.h"
#include "codec/loader_cache.h"

namespace carve::mountns {
namespace {

// The folders that loaders and programs search. The first that exists gets all link names; in the others only the
// driver's existing files are covered.
constexpr std::array<const char*, 6> kLibraryFolders = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
                                                        "/lib/x86_64-linux-gnu",     "/lib64",     "/lib"};
constexpr std::array<const char*, 2> kNames = {"libcuda.so", "libnvidia-ml.so"};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool is_folder(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// The library folders that exist, each once.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  for (const char* name : kLibraryFolders) {
    const std::string real = process::real_path(name);
    if (real.empty() || !is_folder(real)) continue;
    if (std::find(folders.begin(), folders.end(), real) == folders.end()) folders.push_back(real);
  }
  return folders;
}

/// "libcuda.so" for libcuda.so, libcuda.so.1, libcuda.so.580.65.06; empty for other names.
std::string base_name_of(const std::string& name) {
  for (const char* base : kNames) {
    const std::string text = base;
    if (name == text || name.rfind(text + ".", 0) == 0) return text;
  }
  return {};
}

/// Mounts libcarve over every driver file in `folder`, under each of its names.
Result<void> cover_existing(const std::string& folder, const std::map<std::string, Fd>& fronts,
                            const std::string& except) {
  const auto names = process::list_folder(folder);
  if (!names) return {};  // the user cannot read the folder, and therefore not its files
  std::vector<std::string> done;
  for (const auto& name : *names) {
    const std::string base = base_name_of(name);
    if (base.empty()) continue;
    const std::string target = process::real_path(folder + "/" + name);
    if (target.empty() || folder_of(target) == except) continue;
    if (std::find(done.begin(), done.end(), target) != done.end()) continue;
    done.push_back(target);
    CARVE_TRY_VOID(bind_over(fronts.at(base), target));
  }
  return {};
}

bool has_all_links(const std::string& folder) {
  return std::all_of(kNames.begin(), kNames.end(), [&](const char* name) {
    return exists(folder + "/" + name) && exists(folder + "/" + name + ".1");
  });
}

/// Mounts the driver's own two files into the private folder that libcarve names as its dependency.
Result<void> mount_driver(const Fd& cuda, const Fd& nvml, bool have_cuda) {
  const std::string folder = abi::kDriverFolder;
  // Another instance that stops on this host removes the empty folder. Without permission to create it again, the error
  // of the mount names the folder.
  static_cast<void>(process::make_folders(folder, 0755));
  CARVE_TRY_VOID(cover_with_tmpfs(folder));
  CARVE_TRY_VOID(make_target(folder + "/libnvidia-ml.so.1"));
  CARVE_TRY_VOID(bind_over(nvml, folder + "/libnvidia-ml.so.1"));
  if (have_cuda) {
    CARVE_TRY_VOID(make_target(folder + "/libcuda.so.1"));
    CARVE_TRY_VOID(bind_over(cuda, folder + "/libcuda.so.1"));
  }
  return make_read_only(folder);
}

Result<void> mount_libraries(const EnclosurePlan& plan) {
  const auto folders = library_folders();
  if (folders.empty()) return fail(Code::kFailedPrecondition, "no library folder on this host (/usr/lib)");
  CARVE_TRY(const auto nvml, hold(plan.driver.nvml));
  Fd cuda;
  if (!plan.driver.cuda.empty()) {
    CARVE_TRY(cuda, hold(plan.driver.cuda));
  }
  std::map<std::string, Fd> fronts;
  for (const char* name : kNames) {
    CARVE_TRY(fronts[name], hold(plan.links_folder + "/" + name));
  }
  const std::string driver_home = folder_of(plan.driver.nvml);
  if (!has_all_links(folders.front())) {
    CARVE_TRY_VOID(overlay(plan.links_folder, folders.front(), plan.user_namespace));
  } else {
    CARVE_TRY_VOID(cover_existing(folders.front(), fronts, ""));
  }
  for (std::size_t i = 1; i < folders.size(); ++i) {
    CARVE_TRY_VOID(cover_existing(folders[i], fronts, folders.front()));
  }
  if (std::find(folders.begin(), folders.end(), driver_home) == folders.end()) {
    CARVE_TRY_VOID(cover_existing(driver_home, fronts, folders.front()));
  }
  return mount_driver(cuda, nvml, !plan.driver.cuda.empty());
}

/// A whole card needs no file of Carve. The driver is only mounted into a usual folder if it is installed elsewhere.
Result<void> mount_bare_driver(const EnclosurePlan& plan) {
  const auto folders = library_folders();
  const std::string home = folder_of(plan.driver.nvml);
  if (folders.empty() || home.empty()) return {};
  if (std::find(folders.begin(), folders.end(), home) != folders.end()) return {};
  if (has_all_links(folders.front())) return {};
  return overlay(home, folders.front(), plan.user_namespace);
}

/// Adds the driver to the loader's cache, as `ldconfig` would in this mount namespace: programs that search the driver
/// with `ldconfig -p` find only libraries in the cache. If the cache already has the host's driver, it is not changed.
///   memory  a folder on a tmpfs, for the new file
Result<void> mount_loader_cache(const std::string& memory) {
  const std::string usual = "/etc/ld.so.cache";
  const auto folders = library_folders();
  CARVE_TRY(const auto cache, process::read_text(usual, 16U << 20U));
  CARVE_TRY(const auto listed, codec::loader_entries(cache));
  std::vector<codec::LoaderEntry> missing;
  for (const char* base : kNames) {
    for (const char* end : {"", ".1"}) {
      const std::string name = std::string(base) + end;
      const std::string path = folders.empty() ? std::string() : folders.front() + "/" + name;
      const auto found = std::find_if(listed.begin(), listed.end(), [&](const auto& one) { return one.name == name; });
      const bool there = found != listed.end() && process::real_path(found->path) == process::real_path(path);
      if (exists(path) && !there) missing.push_back({name, path});
    }
  }
  if (missing.empty()) return {};
  CARVE_TRY(const auto bytes, codec::with_libraries(cache, missing));
  const std::string file = memory + "/ld.so.cache";
  CARVE_TRY_VOID(process::replace_file(file, bytes, 0644));
  CARVE_TRY(const auto held, hold(file));
  CARVE_TRY_VOID(bind_over(held, usual));
  ::unlink(file.c_str());
  return make_read_only(usual);
}

Result<void> mount_slice(const EnclosurePlan& plan) {
  const std::string slices = abi::kSlicesFolder;
  const std::string inside = folder_of(slices);
  Fd own;
  if (!plan.slice_folder.empty()) {
    CARVE_TRY(own, hold(plan.slice_folder));
  }
  if (is_folder(plan.runtime_folder) && process::real_path(plan.runtime_folder) != process::real_path(inside)) {
    CARVE_TRY_VOID(cover_with_tmpfs(plan.runtime_folder));
    CARVE_TRY_VOID(make_read_only(plan.runtime_folder));
  }
  CARVE_TRY_VOID(cover_with_tmpfs(inside));
  if (own) {
    const std::string target = slices + plan.slice_folder.substr(plan.slice_folder.rfind('/'));
    CARVE_TRY_VOID(process::make_folders(target, 0755));
    CARVE_TRY_VOID(bind_over(own, target));
  }
  // An error is ignored: a program that loads the driver by its name finds it in the folders without the cache.
  static_cast<void>(mount_loader_cache(inside));
  return make_read_only(inside);
}

Result<void> hide_cards(const EnclosurePlan& plan) {
  if (plan.hidden_minors.empty()) return {};
  CARVE_TRY(const auto mask, hold(plan.masking_socket));
  for (const int minor : plan.hidden_minors) {
    const std::string node = "/dev/nvidia" + std::to_string(minor);
    if (exists(node)) CARVE_TRY_VOID(bind_over(mask, node));
  }
  return {};
}

/// Mounts the slice's own nodes over those of its cards, which the process cannot open. Then it hides the folders of
/// all slices, because another slice of the same user may have a card that this slice does not have.
Result<void> mount_own_cards(const EnclosurePlan& plan) {
  if (plan.card_files.empty()) return {};
  for (const int minor : plan.own_minors) {
    const std::string name = "/nvidia" + std::to_string(minor);
    if (!exists(plan.card_files + name)) continue;
    CARVE_TRY(const auto own, hold(plan.card_files + name));
    CARVE_TRY_VOID(bind_over(own, "/dev" + name));
  }
  const std::string all = folder_of(plan.card_files);
  CARVE_TRY_VOID(cover_with_tmpfs(all));
  return make_read_only(all);
}

}  // namespace

EnclosurePlan plan_for(const Grant& grant, bool ordinary_user) {
  EnclosurePlan plan;
  plan.user_namespace = ordinary_user;
  plan.whole = grant.whole;
  if (!grant.whole)
    plan.links_folder = LibraryStore::links_folder(grant.library_folder, grant.driver_version);
  plan.driver = grant.driver;
  plan.slice_folder = grant.slice_folder;
  plan.runtime_folder = grant.runtime_folder;
  plan.hidden_minors = grant.hidden_minors;
  plan.masking_socket = grant.masking_socket;
  plan.card_files = grant.card_files;
  for (const auto& card : grant.cards) {
    if (card.minor >= 0) plan.own_minors.push_back(card.minor);
  }
  return plan;
}

Result<void> enter(const EnclosurePlan& plan) {
  char cwd[PATH_MAX];
  const bool have_cwd = ::getcwd(cwd, sizeof(cwd)) != nullptr;
  CARVE_TRY_VOID(separate(plan.user_namespace));
  CARVE_TRY_VOID(hide_cards(plan));  // first, because the masking socket is in the folder that is hidden next
  CARVE_TRY_VOID(mount_own_cards(plan));
  if (plan.whole) {
    CARVE_TRY_VOID(mount_bare_driver(plan));
  } else {
    CARVE_TRY_VOID(mount_libraries(plan));
  }
  CARVE_TRY_VOID(mount_slice(plan));
  // Enter the working directory by its path again: the old one may be hidden below a new mount.
  if (have_cwd && ::chdir(cwd) != 0)
    return tl::unexpected(errno_error(errno, std::string("go back to ") + cwd));
  return {};
}

Result<void> make_mount_points() {
  CARVE_TRY_VOID(process::make_folders(abi::kDriverFolder, 0755));
  return process::make_folders(folder_of(abi::kSlicesFolder), 0755);
}

}  // namespace carve::mountns
