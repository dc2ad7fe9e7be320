#include "adapter/mountns/library_store.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "adapter/process/text_file.h"

namespace carve::mountns {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 2> kObjects = {
    {{"libcarve-cuda.so", "libcuda.so"}, {"libcarve-nvml.so", "libnvidia-ml.so"}}};
constexpr char kHook[] = "carve-hook";

std::uint64_t fnv(std::string_view bytes, std::uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

Result<void> link_name(const std::string& target, const std::string& path) {
  if (::symlink(target.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_error(errno, "create link " + path));
  }
  return {};
}

}  // namespace

Result<std::string> LibraryStore::install(const std::string& source, const std::string& lib_root) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const auto& [object, link] : kObjects) {
    const auto bytes = process::read_text(source + "/" + object, 256U << 20U);
    if (!bytes) return fail_in("libcarve", bytes.error());
    hash = fnv(*bytes, hash);
  }
  const auto hook = process::read_text(source + "/" + kHook, 256U << 20U);
  if (hook) hash = fnv(*hook, hash);
  char id[17];
  std::snprintf(id, sizeof(id), "%016llx", static_cast<unsigned long long>(hash));
  const std::string folder = lib_root + "/" + id;
  CARVE_TRY_VOID(process::make_folders(folder, 0755));
  for (const auto& [object, link] : kObjects) {
    const std::string to = folder + "/" + object;
    if (::access(to.c_str(), R_OK) == 0) continue;
    CARVE_TRY_VOID(process::copy_file(source + "/" + object, to, 0755));
  }
  const std::string to = folder + "/" + kHook;
  if (hook && ::access(to.c_str(), X_OK) != 0) CARVE_TRY_VOID(process::copy_file(source + "/" + kHook, to, 0755));
  CARVE_TRY_VOID(check_executable(folder));
  return folder;
}

Result<void> LibraryStore::make_links(const std::string& folder, const std::string& driver_version) {
  const std::string links = links_folder(folder, driver_version);
  CARVE_TRY_VOID(process::make_folders(links, 0755));
  const std::string version = driver_version.empty() ? "carve" : driver_version;
  for (const auto& [object, name] : kObjects) {
    const std::string file = links + "/" + name + "." + version;
    if (::access(file.c_str(), R_OK) != 0) CARVE_TRY_VOID(process::copy_file(folder + "/" + object, file, 0755));
    CARVE_TRY_VOID(link_name(std::string(name) + "." + version, links + "/" + name + ".1"));
    CARVE_TRY_VOID(link_name(std::string(name) + ".1", links + "/" + name));
  }
  return {};
}

Result<void> LibraryStore::check_executable(const std::string& folder) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0) return tl::unexpected(errno_error(errno, "examine " + folder));
  if ((info.f_flag & ST_NOEXEC) != 0) {
    return fail(
        Code::kFailedPrecondition,
        folder +
            ": mounted noexec, so that no process can load libraries from it; choose another folder with --lib-dir");
  }
  return {};
}

}  // namespace carve::mountns
