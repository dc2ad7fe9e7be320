#include "arbiter/page_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/core.h>

namespace carve::arbiter {
namespace {

// Debian 12's headers define the numbers, but not always the wrappers.
constexpr unsigned kOpenTreeClone = 1;
constexpr std::uint64_t kMountAttrRdonly = 1;
struct MountAttr {
  std::uint64_t attr_set;
  std::uint64_t attr_clr;
  std::uint64_t propagation;
  std::uint64_t userns_fd;
};

std::string memfd_name(const std::string& name) { return "carve-account-" + name; }

bool on_tmpfs(const std::string& folder) {
  struct statfs here = {};
  return statfs(folder.c_str(), &here) == 0 && here.f_type == TMPFS_MAGIC;
}

struct Mapping {
  std::string range;  // as /proc spells it
  bool writable;
  std::int32_t thread;  // its /proc entry shows the mapping
  std::uint64_t offset;
};

struct Memory {
  bool any = false;  // this thread shows memory
  std::vector<Mapping> page;
};

/// The mappings of the account page in one thread's list of mappings. Memory::any is false for a thread that has ended
/// and for a kernel thread: the file is empty or gone then.
Result<Memory> memory_of(const std::string& path, std::int32_t thread, const std::string& name, std::uint64_t inode) {
  const auto gone = [](int error) { return error == ENOENT || error == ESRCH; };
  const std::string wanted = fmt::format(" {} ", inode);
  const std::string named = "/memfd:" + memfd_name(name) + " ";
  Memory seen;
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen(path.c_str(), "re"), std::fclose);
  if (!maps && gone(errno)) return seen;
  if (!maps) return tl::unexpected(errno_error(errno, "open " + path));
  char line[512];
  while (std::fgets(line, sizeof line, maps.get())) {
    seen.any = true;
    if (!std::strstr(line, named.c_str()) || !std::strstr(line, wanted.c_str())) continue;
    const std::size_t length = std::strcspn(line, " ");
    constexpr std::size_t kPermissions = 6;  // " rw-s "
    const char* rest = line + length;
    const std::uint64_t offset = std::strlen(rest) > kPermissions ? std::strtoull(rest + kPermissions, nullptr, 16) : 0;
    seen.page.push_back({std::string(line, length), std::strncmp(rest, " rw-s", 5) == 0, thread, offset});
  }
  if (std::ferror(maps.get()) && gone(errno)) return Memory();
  if (std::ferror(maps.get())) return tl::unexpected(errno_error(errno, "read " + path));
  return seen;
}

/// A process's threads; none if the process has ended.
Result<std::vector<std::int32_t>> threads_of(std::int32_t pid) {
  const std::string path = fmt::format("/proc/{}/task", pid);
  std::vector<std::int32_t> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(path.c_str()), closedir);
  if (!listing && (errno == ENOENT || errno == ESRCH)) return threads;
  if (!listing) return tl::unexpected(errno_error(errno, "open " + path));
  while (const dirent* entry = readdir(listing.get())) {
    if (entry->d_name[0] != '.') threads.push_back(std::atoi(entry->d_name));
  }
  return threads;
}

/// Where a process maps the account page. Empty for a process that has ended or has no memory (a kernel thread). Any
/// other failure is an error.
Result<std::vector<Mapping>> mappings_of(std::int32_t pid, const std::string& name, std::uint64_t inode) {
  CARVE_TRY(auto own, memory_of(fmt::format("/proc/{}/maps", pid), pid, name, inode));
  if (own.any) return own.page;
  // The first thread has ended and shows no memory any more, but other threads may use that memory.
  CARVE_TRY(const auto threads, threads_of(pid));
  bool others = false;
  for (const std::int32_t thread : threads) {
    if (thread == pid) continue;
    others = true;
    CARVE_TRY(auto seen, memory_of(fmt::format("/proc/{}/task/{}/maps", pid, thread), thread, name, inode));
    if (seen.any) return seen.page;
  }
  // The listed threads have ended, but may have started new ones before.
  if (others) return fail(Code::kUnavailable, fmt::format("process {}: its threads changed while they were read", pid));
  return std::vector<Mapping>();
}

template <class Page>
Result<Mapped<Page>> map_page(int fd, std::string_view what) {
  void* at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return tl::unexpected(errno_error(errno, fmt::format("map {}", what)));
  return Mapped<Page>(static_cast<Page*>(at));
}

}  // namespace

template <class Page>
void Mapped<Page>::unmap(Page* page) {
  if (page) munmap(page, sizeof(Page));
}
template class Mapped<abi::GrantPage>;
template class Mapped<abi::AccountPage>;

Result<PageFiles> PageFiles::open(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_error(errno, "create " + folder));
  }
  if (!on_tmpfs(folder) &&
      mount("carve-pages", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=64m") != 0) {
    return tl::unexpected(errno_error(errno, "mount a tmpfs at " + folder));
  }
  const long tree = syscall(SYS_open_tree, AT_FDCWD, folder.c_str(), kOpenTreeClone | O_CLOEXEC);
  if (tree < 0) return tl::unexpected(errno_error(errno, "clone the mount at " + folder));
  PageFiles files;
  files.folder_ = folder;
  files.read_only_ = Fd(static_cast<int>(tree));
  MountAttr attributes{kMountAttrRdonly, 0, 0, 0};
  if (syscall(SYS_mount_setattr, files.read_only_.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
    return tl::unexpected(errno_error(errno, "make the clone of " + folder + " read-only"));
  }
  return files;
}

Result<Mapped<abi::GrantPage>> PageFiles::grant(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return tl::unexpected(errno_error(errno, "open grant page " + name));
  // Reserves the storage: if the file system is full, that is an error here and not a signal at the first write.
  if (const int error = posix_fallocate(fd.get(), 0, sizeof(abi::GrantPage)); error != 0) {
    return tl::unexpected(errno_error(error, "allocate grant page " + name));
  }
  return map_page<abi::GrantPage>(fd.get(), "grant page " + name);
}

Result<Fd> PageFiles::tenant_descriptor(const std::string& name) const {
  Fd fd(openat(read_only_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return tl::unexpected(errno_error(errno, "open grant page " + name + " read-only"));
  return fd;
}

void PageFiles::remove(const std::string& name) const { unlink((folder_ + "/" + name).c_str()); }

bool PageFiles::exists(const std::string& name) const { return access((folder_ + "/" + name).c_str(), F_OK) == 0; }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* listing = opendir(folder.c_str());
  while (const dirent* entry = listing ? readdir(listing) : nullptr) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (listing) closedir(listing);
  return names;
}

void PageFiles::unmount() const { umount2(folder_.c_str(), MNT_DETACH); }

Result<AccountFile> PageFiles::make_account(const std::string& name) {
  Fd fd(memfd_create(memfd_name(name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return tl::unexpected(errno_error(errno, "create account page " + name));
  if (ftruncate(fd.get(), sizeof(abi::AccountPage)) != 0) {
    return tl::unexpected(errno_error(errno, "size account page " + name));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return tl::unexpected(errno_error(errno, "seal account page " + name));
  }
  return map_account(std::move(fd));
}

Result<AccountFile> PageFiles::map_account(Fd fd) {
  struct stat facts = {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &facts) != 0 || facts.st_size != sizeof(abi::AccountPage) || seals < 0 ||
      (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    return fail(Code::kInvalidArgument, fmt::format("account page: not a sealed memfd of {} bytes",
                                                    sizeof(abi::AccountPage)));
  }
  CARVE_TRY(auto page, map_page<abi::AccountPage>(fd.get(), "account page"));
  return AccountFile{std::move(fd), facts.st_ino, std::move(page)};
}

Result<AccountFile> PageFiles::find_account(const std::string& name, std::uint64_t inode) {
  DIR* processes = opendir("/proc");
  Result<AccountFile> found = fail(Code::kNotFound, "no living process maps account page " + name);
  while (const dirent* entry = processes ? readdir(processes) : nullptr) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const std::int32_t pid = std::atoi(entry->d_name);
    for (const Mapping& mapping : mappings_of(pid, name, inode).value_or(std::vector<Mapping>())) {
      const std::string path = fmt::format("/proc/{}/map_files/{}", mapping.thread, mapping.range);
      Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!fd) continue;
      auto mapped = map_account(std::move(fd));
      if (!mapped || mapped->inode != inode) continue;
      found = std::move(mapped);
      break;
    }
    if (found) break;
  }
  if (processes) closedir(processes);
  return found;
}

Result<std::string> PageFiles::lifeline(std::int32_t pid, const std::string& name, std::uint64_t inode,
                                        std::uint32_t entry) {
  CARVE_TRY(const auto all, mappings_of(pid, name, inode));
  for (const Mapping& mapping : all) {
    if (mapping.offset == abi::lifeline_offset(entry)) return mapping.range;
  }
  return std::string();
}

std::map<std::uint32_t, std::string> PageFiles::lifelines(const std::string& name, std::uint64_t inode) {
  std::map<std::uint32_t, std::string> places;
  for (const std::string& process : names_in("/proc")) {
    if (process[0] < '1' || process[0] > '9') continue;
    const auto all = mappings_of(std::atoi(process.c_str()), name, inode);
    for (const Mapping& mapping : all.value_or(std::vector<Mapping>())) {
      if (mapping.offset < abi::lifeline_offset(0)) continue;
      const std::uint64_t entry = (mapping.offset - abi::lifeline_offset(0)) / abi::kLifelineBytes;
      if (entry < abi::kAccountEntries) places.emplace(static_cast<std::uint32_t>(entry), mapping.range);
    }
  }
  return places;
}

Result<std::vector<std::int32_t>> PageFiles::heirs(const std::string& place, const std::string& name,
                                                   std::uint64_t inode, std::uint32_t entry) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir("/proc"), closedir);
  if (!listing) return tl::unexpected(errno_error(errno, "open /proc"));
  std::vector<std::int32_t> found;
  while (const dirent* file = readdir(listing.get())) {
    const std::string process = file->d_name;
    if (process[0] < '1' || process[0] > '9') continue;
    struct stat behind = {};
    if (stat(fmt::format("/proc/{}/map_files/{}", process, place).c_str(), &behind) != 0 || behind.st_ino != inode) {
      continue;
    }
    // Another process of the slice may have its own lifeline at the same address.
    const std::int32_t pid = std::atoi(process.c_str());
    if (lifeline(pid, name, inode, entry).value_or(place) == place) found.push_back(pid);
  }
  return found;
}

Result<int> PageFiles::count_mappings(std::int32_t pid, const std::string& name, std::uint64_t inode) {
  CARVE_TRY(const auto all, mappings_of(pid, name, inode));
  return static_cast<int>(std::count_if(all.begin(), all.end(), [](const Mapping& m) { return m.writable; }));
}

}  // namespace carve::arbiter
