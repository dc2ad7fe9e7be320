#include "adapter/cdi/driver_files.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <sstream>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

struct UseRow {
  DriverUse use;
  const char* word;
  bool by_policy;
};
constexpr std::array<UseRow, 6> kUses = {{{DriverUse::kCompute, "compute", false},
                                          {DriverUse::kUtility, "utility", false},
                                          {DriverUse::kOpenCl, "opencl", true},
                                          {DriverUse::kVideo, "video", true},
                                          {DriverUse::kGraphics, "graphics", true},
                                          {DriverUse::kNgx, "ngx", true}}};

struct LibraryRow {
  const char* stem;
  DriverUse use;
};
// The caller handles libcuda and NVML. Not in this list, because containers must not have them: nscq and fabric
// management, persistenced, the MPS servers (they share contexts, whereas Carve accounts by process), the firmware.
constexpr LibraryRow kLibraries[] = {
    {"libnvidia-ptxjitcompiler", DriverUse::kCompute}, {"libnvidia-nvvm", DriverUse::kCompute},
    {"libnvidia-nvvm70", DriverUse::kCompute},         {"libnvidia-fatbinaryloader", DriverUse::kCompute},
    {"libnvidia-gpucomp", DriverUse::kCompute},        {"libnvidia-tileiras", DriverUse::kCompute},
    {"libnvidia-pkcs11", DriverUse::kCompute},         {"libnvidia-pkcs11-openssl3", DriverUse::kCompute},
    {"libcudadebugger", DriverUse::kUtility},          {"libnvidia-cfg", DriverUse::kUtility},
    {"libnvidia-opencl", DriverUse::kOpenCl},          {"libnvidia-compiler", DriverUse::kOpenCl},
    {"libnvidia-encode", DriverUse::kVideo},           {"libnvidia-opticalflow", DriverUse::kVideo},
    {"libnvcuvid", DriverUse::kVideo},                 {"libvdpau_nvidia", DriverUse::kVideo},
    {"libnvidia-eglcore", DriverUse::kGraphics},       {"libnvidia-glcore", DriverUse::kGraphics},
    {"libnvidia-tls", DriverUse::kGraphics},           {"libnvidia-glsi", DriverUse::kGraphics},
    {"libnvidia-fbc", DriverUse::kGraphics},           {"libnvidia-rtcore", DriverUse::kGraphics},
    {"libnvidia-glvkspirv", DriverUse::kGraphics},     {"libnvoptix", DriverUse::kGraphics},
    {"libGLX_nvidia", DriverUse::kGraphics},           {"libEGL_nvidia", DriverUse::kGraphics},
    {"libGLESv1_CM_nvidia", DriverUse::kGraphics},     {"libGLESv2_nvidia", DriverUse::kGraphics},
    {"libnvidia-allocator", DriverUse::kGraphics},     {"libnvidia-ngx", DriverUse::kNgx},
};
constexpr const char* kPrograms[] = {"nvidia-smi", "nvidia-debugdump"};
constexpr const char* kSockets[] = {"/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"};
constexpr const char* kFolders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                    "/usr/lib"};
#if defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_X86_64;
#endif

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// False for the 32-bit libraries of the same names that distributions keep in other folders: a link may lead there.
bool is_of_this_machine(const std::string& path) {
  const auto head = process::read_text(path, sizeof(Elf64_Ehdr));
  if (!head || head->size() < sizeof(Elf64_Ehdr)) return false;
  Elf64_Ehdr header;
  std::memcpy(&header, head->data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_machine == kMachine;
}

/// The prefix under which the driver was installed: "" or "/run/nvidia/driver".
std::string root_of(const std::string& file) {
  for (const char* mark : {"/usr/", "/lib/", "/lib64/"}) {
    if (const auto at = file.find(mark); at != std::string::npos) return file.substr(0, at);
  }
  return folder_of(file);
}

/// The folders that may contain this driver's files: those of its two libraries first, each folder once.
std::vector<std::string> folders_of(const DriverFiles& driver) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& folder) {
    const bool fresh = std::find(folders.begin(), folders.end(), folder) == folders.end();
    if (!folder.empty() && fresh) folders.push_back(folder);
  };
  add(folder_of(driver.nvml));
  if (!driver.cuda.empty()) add(folder_of(driver.cuda));
  const std::string root = root_of(driver.nvml);
  for (const char* folder : kFolders) add(root + folder);
  return folders;
}

/// True for "4" of libnvidia-nvvm.so.4, the name that the loader searches. Driver versions contain dots.
bool is_link_number(const std::string& text) {
  return !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == std::string::npos;
}

const LibraryRow* row_of(const std::string& name, std::string* rest) {
  for (const auto& row : kLibraries) {
    const std::string stem = std::string(row.stem) + ".so.";
    if (name.rfind(stem, 0) != 0) continue;
    *rest = name.substr(stem.size());
    return &row;
  }
  return nullptr;
}

void look_into(const std::string& folder, const std::string& version, const std::string& host_root,
               std::map<std::string, DriverLibrary>* found, std::map<std::string, std::vector<std::string>>* links) {
  const auto names = process::list_folder(host_root + folder);
  if (!names) return;
  for (const auto& name : *names) {
    std::string rest;
    const LibraryRow* row = row_of(name, &rest);
    if (row == nullptr) continue;
    if (is_link_number(rest)) {
      auto& known = (*links)[row->stem];
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    } else if (rest == version && found->count(row->stem) == 0 && is_of_this_machine(host_root + folder + "/" + name)) {
      (*found)[row->stem] = {folder + "/" + name, {name}, row->use};
    }
  }
}

}  // namespace

const char* to_string(DriverUse use) { return kUses.at(static_cast<std::size_t>(use)).word; }

Result<std::vector<DriverUse>> parse_uses(const std::string& words) {
  std::vector<DriverUse> uses;
  std::istringstream text(words);
  for (std::string word; std::getline(text, word, ',');) {
    const auto* row = std::find_if(kUses.begin(), kUses.end(), [&](const UseRow& one) { return word == one.word; });
    if (row == kUses.end() || !row->by_policy) {
      return fail(Code::kInvalidArgument, "\"" + word.substr(0, 64) +
                                              "\" is not a kind of driver library; legal are opencl, video, graphics "
                                              "and ngx, separated by commas (compute and utility are always included)");
    }
    uses.push_back(row->use);
  }
  return uses;
}

DriverInstallation find_driver_files(const DriverFiles& driver, const std::string& version,
                                     const std::string& host_root) {
  DriverInstallation all;
  if (driver.nvml.empty()) return all;
  std::map<std::string, DriverLibrary> found;
  std::map<std::string, std::vector<std::string>> links;
  if (!version.empty()) {
    for (const auto& folder : folders_of(driver)) look_into(folder, version, host_root, &found, &links);
  }
  for (auto& [stem, library] : found) {
    const auto& names = links[stem];
    library.names.insert(library.names.end(), names.begin(), names.end());
    std::sort(library.names.begin(), library.names.end());
    all.libraries.push_back(library);
  }
  std::sort(all.libraries.begin(), all.libraries.end(),
            [](const DriverLibrary& a, const DriverLibrary& b) { return a.path < b.path; });
  const std::string root = root_of(driver.nvml);
  for (const char* name : kPrograms) {
    const std::string path = root + "/usr/bin/" + name;
    if (::access((host_root + path).c_str(), X_OK) == 0) all.programs.push_back(path);
  }
  for (const char* path : kSockets) {
    struct stat info = {};
    if (::stat((host_root + path).c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) all.sockets.emplace_back(path);
  }
  return all;
}

}  // namespace carve::cdi
