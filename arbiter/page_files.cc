#include "arbiter/page_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include <cerrno>

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

bool on_tmpfs(const std::string& folder) {
  struct statfs here = {};
  return statfs(folder.c_str(), &here) == 0 && here.f_type == TMPFS_MAGIC;
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

Result<Fd> read_only_clone(const std::string& folder) {
  Fd clone(static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, folder.c_str(), kOpenTreeClone | O_CLOEXEC)));
  if (!clone) return tl::unexpected(errno_error(errno, "clone the mount at " + folder));
  MountAttr attributes{kMountAttrRdonly, 0, 0, 0};
  if (syscall(SYS_mount_setattr, clone.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
    return tl::unexpected(errno_error(errno, "make the clone of " + folder + " read-only"));
  }
  return clone;
}

Result<PageFiles> PageFiles::open(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_error(errno, "create " + folder));
  }
  if (!on_tmpfs(folder) &&
      mount("carve-pages", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=64m") != 0) {
    return tl::unexpected(errno_error(errno, "mount a tmpfs at " + folder));
  }
  PageFiles files;
  files.folder_ = folder;
  CARVE_TRY(files.read_only_, read_only_clone(folder));
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
  Fd fd(memfd_create((kAccountName + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
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

}  // namespace carve::arbiter
