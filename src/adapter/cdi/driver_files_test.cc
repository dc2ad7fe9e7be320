#include "adapter/cdi/driver_files.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "adapter/cdi/cdi_files.h"

// Golden tests: the driver files that a container gets, for the folder layouts of common distributions.
namespace carve::cdi {
namespace {

namespace fs = std::filesystem;
constexpr char kVersion[] = "550.54.15";

/// A host's file system below a folder in /tmp.
class HostTree {
 public:
  HostTree() {
    char name[] = "/tmp/carve-host-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~HostTree() { fs::remove_all(root_); }
  [[nodiscard]] const std::string& root() const { return root_; }

  void library(const std::string& path, Elf64_Half machine = EM_X86_64, unsigned char bits = ELFCLASS64) const {
    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = bits;
    header.e_machine = machine;
    file(path, {reinterpret_cast<const char*>(&header), sizeof header});
  }
  void file(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::binary) << text;
    ::chmod((root_ + path).c_str(), 0755);
  }
  void link(const std::string& path, const std::string& target) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    fs::create_symlink(target, root_ + path);
  }
  /// Creates a driver of kVersion in one folder, like its installer.
  void driver(const std::string& folder) const {
    for (const char* stem : {"libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-cfg", "libnvcuvid",
                             "libnvidia-opencl", "libnvidia-glcore", "libnvidia-nscq"}) {
      const std::string name = std::string(stem) + ".so.";
      library(folder + "/" + name + kVersion);
      link(folder + "/" + name + "1", name + kVersion);
    }
    library(folder + "/libnvidia-nvvm.so." + kVersion);
    link(folder + "/libnvidia-nvvm.so.4", std::string("libnvidia-nvvm.so.") + kVersion);
  }

 private:
  std::string root_;
};

DriverFiles files_in(const std::string& folder) {
  return {folder + "/libcuda.so." + kVersion, folder + "/libnvidia-ml.so." + kVersion};
}

/// "use path: names", one line each.
std::string told(const DriverInstallation& all) {
  std::string text;
  for (const auto& library : all.libraries) {
    text += std::string(to_string(library.use)) + " " + library.path + ":";
    for (const auto& name : library.names) text += " " + name;
    text += "\n";
  }
  for (const auto& program : all.programs) text += "program " + program + "\n";
  for (const auto& socket : all.sockets) text += "socket " + socket + "\n";
  return text;
}

std::string golden(const std::string& folder) {
  return "video " + folder + "/libnvcuvid.so.550.54.15: libnvcuvid.so.1 libnvcuvid.so.550.54.15\n" +  //
         "utility " + folder + "/libnvidia-cfg.so.550.54.15: libnvidia-cfg.so.1 libnvidia-cfg.so.550.54.15\n" +
         "graphics " + folder +
         "/libnvidia-glcore.so.550.54.15: libnvidia-glcore.so.1 libnvidia-glcore.so.550.54.15\n" +  //
         "compute " + folder + "/libnvidia-nvvm.so.550.54.15: libnvidia-nvvm.so.4 libnvidia-nvvm.so.550.54.15\n" +
         "opencl " + folder + "/libnvidia-opencl.so.550.54.15: libnvidia-opencl.so.1 libnvidia-opencl.so.550.54.15\n" +
         "compute " + folder +
         "/libnvidia-ptxjitcompiler.so.550.54.15: libnvidia-ptxjitcompiler.so.1 "
         "libnvidia-ptxjitcompiler.so.550.54.15\n";
}

TEST(DriverFilesOf, FindsTheFilesInDebiansMultiarchFolder) {
  const HostTree host;
  const std::string folder = "/usr/lib/x86_64-linux-gnu";
  host.driver(folder);
  host.file("/usr/bin/nvidia-smi", "");
  host.library("/usr/lib/i386-linux-gnu/libnvidia-ptxjitcompiler.so.550.54.15", EM_386, ELFCLASS32);
  EXPECT_EQ(told(find_driver_files(files_in(folder), kVersion, host.root())),
            golden(folder) + "program /usr/bin/nvidia-smi\n");
}

TEST(DriverFilesOf, FindsTheFilesBehindDebiansAlternatives) {
  const HostTree host;
  const std::string links = "/usr/lib/x86_64-linux-gnu";
  const std::string home = links + "/nvidia/current";
  for (const char* stem : {"libcuda", "libnvidia-ml"}) host.library(home + "/" + stem + ".so." + kVersion);
  const std::string compiler = links + "/libnvidia-ptxjitcompiler.so.550.54.15";
  host.library(compiler);
  host.link(links + "/libnvidia-ptxjitcompiler.so.1", "/etc/alternatives/glx--libnvidia-ptxjitcompiler.so.1");
  EXPECT_EQ(told(find_driver_files(files_in(home), kVersion, host.root())),
            "compute " + compiler + ": libnvidia-ptxjitcompiler.so.1 libnvidia-ptxjitcompiler.so.550.54.15\n");
}

TEST(DriverFilesOf, IgnoresRedHats32BitLibraries) {
  const HostTree host;
  host.driver("/usr/lib64");
  host.library("/usr/lib/libnvidia-ptxjitcompiler.so.550.54.15", EM_386, ELFCLASS32);
  EXPECT_EQ(told(find_driver_files(files_in("/usr/lib64"), kVersion, host.root())), golden("/usr/lib64"));
}

TEST(DriverFilesOf, SearchesTheRootOfADriverContainerAndNotTheHosts) {
  const HostTree host;
  const std::string folder = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu";
  host.driver(folder);
  host.file("/run/nvidia/driver/usr/bin/nvidia-smi", "");
  host.file("/usr/bin/nvidia-debugdump", "");
  EXPECT_EQ(told(find_driver_files(files_in(folder), kVersion, host.root())),
            golden(folder) + "program /run/nvidia/driver/usr/bin/nvidia-smi\n");
}

TEST(DriverFilesOf, IgnoresOtherVersionsOtherMachinesAndFilesThatAreNotLibraries) {
  const HostTree host;
  const std::string folder = "/usr/lib64";
  host.library(folder + "/libnvidia-ml.so.550.54.15");
  host.library(folder + "/libnvidia-nvvm.so.535.104.05");
  host.library(folder + "/libnvidia-ptxjitcompiler.so.550.54.15", EM_AARCH64);
  host.file(folder + "/libnvidia-cfg.so.550.54.15", "#!/bin/sh");
  EXPECT_EQ(told(find_driver_files(files_in(folder), kVersion, host.root())), "");
}

TEST(DriverFilesOf, FindsTheSocketsOfRunningDaemons) {
  const HostTree host;
  host.driver("/usr/lib64");
  host.file("/run/nvidia-fabricmanager/socket", "a file is no daemon");
  fs::create_directories(host.root() + "/run/nvidia-persistenced");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (host.root() + "/run/nvidia-persistenced/socket").c_str());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  EXPECT_EQ(find_driver_files(files_in("/usr/lib64"), kVersion, host.root()).sockets,
            std::vector<std::string>{"/run/nvidia-persistenced/socket"});
}

TEST(DriverUses, ParsesTheWordsOfTheConfiguration) {
  EXPECT_EQ(*parse_uses("video,opencl"), (std::vector<DriverUse>{DriverUse::kVideo, DriverUse::kOpenCl}));
  const auto refused = parse_uses("video,compute");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("\"compute\""), std::string::npos);
}

// --- the spec with these files ---------------------------------------------------------------------------------------

/// The mounts in the spec for this tree: containerPath → hostPath.
std::map<std::string, std::string> mounts_for(const HostTree& host, bool whole, std::vector<DriverUse> uses,
                                              std::string* environment = nullptr) {
  SliceDevice device;
  device.id = "s-1";
  device.whole = whole;
  device.slice_folder = whole ? "" : "/run/carve/slices/s-1";
  device.library_folder = "/var/lib/carve/lib/abc";
  device.driver_version = kVersion;
  device.driver = files_in("/usr/lib64");
  const CdiOptions options{"", host.root(), std::move(uses)};
  const auto spec = nlohmann::json::parse(
      CdiFiles::spec_of(device, options, find_driver_files(device.driver, kVersion, host.root())));
  const auto& edits = spec["devices"][0]["containerEdits"];
  if (environment != nullptr) *environment = edits["env"].dump();
  std::map<std::string, std::string> mounts;
  for (const auto& mount : edits["mounts"]) {
    EXPECT_TRUE(mounts.emplace(mount["containerPath"], mount["hostPath"]).second) << mount;
    EXPECT_EQ(mount["hostPath"].get<std::string>().rfind(host.root(), 0), std::string::npos) << "paths of the host";
  }
  return mounts;
}

TEST(SpecOfAnInstalledDriver, AFractionGetsLibcarveAndTheLibrariesThatTheDriverLoads) {
  const HostTree host;
  host.driver("/usr/lib64");
  host.file("/usr/bin/nvidia-smi", "");
  std::string environment;
  auto mounts = mounts_for(host, false, {}, &environment);
  EXPECT_EQ(mounts["/usr/lib64/libcuda.so.550.54.15"], "/var/lib/carve/lib/abc/libcarve-cuda.so");
  EXPECT_EQ(mounts["/usr/lib/carve/driver/libcuda.so.1"], "/usr/lib64/libcuda.so.550.54.15");
  for (const char* folder : {"/usr/lib64/", "/usr/lib/x86_64-linux-gnu/", "/usr/lib/"}) {
    EXPECT_EQ(mounts[std::string(folder) + "libnvidia-nvvm.so.4"], "/usr/lib64/libnvidia-nvvm.so.550.54.15") << folder;
    EXPECT_EQ(mounts[std::string(folder) + "libnvidia-ptxjitcompiler.so.550.54.15"],
              "/usr/lib64/libnvidia-ptxjitcompiler.so.550.54.15")
        << folder;
  }
  EXPECT_EQ(mounts["/usr/bin/nvidia-smi"], "/usr/bin/nvidia-smi");
  for (const auto& [inside, from] : mounts) {
    EXPECT_EQ(inside.find("nvcuvid"), std::string::npos) << "video bypasses libcarve";
    EXPECT_EQ(inside.find("opencl"), std::string::npos);
    EXPECT_EQ(inside.find("nscq"), std::string::npos) << "not for containers";
  }
  EXPECT_EQ(environment, R"(["NVIDIA_VISIBLE_DEVICES=void"])");
}

TEST(SpecOfAnInstalledDriver, OtherLibrariesNeedAPolicyAndAreMarked) {
  const HostTree host;
  host.driver("/usr/lib64");
  std::string environment;
  const auto mounts = mounts_for(host, false, {DriverUse::kVideo}, &environment);
  EXPECT_TRUE(mounts.count("/usr/lib64/libnvcuvid.so.1"));
  EXPECT_FALSE(mounts.count("/usr/lib64/libnvidia-opencl.so.1"));
  EXPECT_EQ(environment, R"(["NVIDIA_VISIBLE_DEVICES=void","CARVE_SECOND_LINE_ONLY=video"])");
}

TEST(SpecOfAnInstalledDriver, AWholeCardHasTheDriversOwnLibraries) {
  const HostTree host;
  host.driver("/usr/lib64");
  auto mounts = mounts_for(host, true, {});
  EXPECT_EQ(mounts["/usr/lib64/libcuda.so.1"], "/usr/lib64/libcuda.so.550.54.15");
  EXPECT_EQ(mounts["/usr/lib64/libnvidia-nvvm.so.4"], "/usr/lib64/libnvidia-nvvm.so.550.54.15");
  EXPECT_FALSE(mounts.count("/usr/lib/carve/driver/libcuda.so.1"));
}

}  // namespace
}  // namespace carve::cdi
