#include "adapter/cdi/container_cache.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <optional>

#include "base/fd.h"

namespace carve::cdi {
namespace {

namespace json = boost::json;

constexpr char kFile[] = "ld.so.cache";
constexpr char kNewFile[] = "ld.so.cache.carve";
constexpr std::size_t kMostBytes = 64U << 20U;

tl::unexpected<Error> failed(int error, const std::string& what) { return tl::unexpected(errno_error(error, what)); }

/// Opens a path as the container would see it: no symbolic link leads out of `root`.
Fd open_inside(const Fd& root, const char* path, std::uint64_t flags) {
  open_how how = {};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return Fd(static_cast<int>(::syscall(SYS_openat2, root.get(), path, &how, sizeof how)));
}

Result<std::string> read_whole(const Fd& fd, const std::string& what) {
  std::string bytes;
  char buffer[65536];
  while (bytes.size() <= kMostBytes) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno, "read " + what);
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<std::size_t>(n));
  }
  return fail(Code::kOutOfRange, what + ": larger than 64 MiB");
}

Result<void> write_whole(const Fd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno, "write /etc/ld.so.cache");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

/// The content of the cache; empty: the file does not exist.
Result<std::string> read_cache(const Fd& root) {
  // The image may contain a pipe at this path: open() must not block.
  const Fd fd = open_inside(root, "etc/ld.so.cache", O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd && errno == ENOENT) return std::string();
  if (!fd) return failed(errno, "open /etc/ld.so.cache");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return fail(Code::kInvalidArgument, "/etc/ld.so.cache is not a regular file");
  return read_whole(fd, "/etc/ld.so.cache");
}

std::optional<std::uint64_t> mount_of(const Fd& folder) {
  struct statx info = {};
  if (::statx(folder.get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &info) != 0) return std::nullopt;
  if ((info.stx_mask & STATX_MNT_ID) == 0) return std::nullopt;
  return info.stx_mnt_id;
}

/// True when the folder belongs to the container's own file system: it is neither a mount of another file system nor
/// the host's /etc itself.
bool is_own(const Fd& root, const Fd& folder) {
  struct stat mine = {};
  struct stat of_root = {};
  struct stat of_host = {};
  if (::fstat(folder.get(), &mine) != 0 || ::fstat(root.get(), &of_root) != 0) return false;
  if (::stat("/etc", &of_host) == 0 && of_host.st_dev == mine.st_dev && of_host.st_ino == mine.st_ino) return false;
  const auto here = mount_of(folder);
  const auto there = mount_of(root);
  return here && there ? *here == *there : mine.st_dev == of_root.st_dev;
}

/// Replaces the cache atomically, so that a concurrent reader sees either the old or the new file.
Result<void> replace(const Fd& folder, std::string_view bytes) {
  ::unlinkat(folder.get(), kNewFile, 0);
  const Fd fd(::openat(folder.get(), kNewFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return failed(errno, "create /etc/ld.so.cache");
  auto done = write_whole(fd, bytes);
  if (done && ::fchmod(fd.get(), 0644) != 0) done = failed(errno, "chmod /etc/ld.so.cache");
  if (done && ::renameat(folder.get(), kNewFile, folder.get(), kFile) != 0)
    done = failed(errno, "rename to /etc/ld.so.cache");
  if (!done) ::unlinkat(folder.get(), kNewFile, 0);
  return done;
}

std::string handle(const Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

/// Mounts a file in memory over the old cache. The file is created in a tmpfs that briefly covers /etc, because a file
/// of a file system that is not mounted anywhere cannot be bind-mounted.
Result<void> cover(const Fd& root, const Fd& folder, std::string_view bytes) {
  const Fd target = open_inside(root, "etc/ld.so.cache", O_PATH | O_NOFOLLOW);
  if (!target) return fail(Code::kFailedPrecondition, "/etc cannot be written and contains no ld.so.cache");
  const std::string size = "mode=0755,size=" + std::to_string(bytes.size() + (1U << 16U));
  if (::mount("carve", handle(folder).c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, size.c_str()) != 0)
    return failed(errno, "mount a tmpfs for /etc/ld.so.cache");
  Result<void> done;
  const Fd above = open_inside(root, "etc", O_PATH | O_DIRECTORY);
  if (!above) return fail(Code::kDataLoss, "a tmpfs covers /etc and cannot be opened");
  {
    const Fd fd(::openat(above.get(), kFile, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    done = fd ? write_whole(fd, bytes) : failed(errno, "create a file for /etc/ld.so.cache");
  }
  const Fd source(::openat(above.get(), kFile, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (done && ::mount(handle(source).c_str(), handle(target).c_str(), nullptr, MS_BIND, nullptr) != 0)
    done = failed(errno, "mount over /etc/ld.so.cache");
  if (::umount2(handle(above).c_str(), MNT_DETACH) != 0)
    return fail(Code::kDataLoss, "a tmpfs covers /etc and cannot be unmounted");
  if (!done) return done;
  const Fd placed = open_inside(root, "etc/ld.so.cache", O_PATH | O_NOFOLLOW);
  const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (::mount(nullptr, handle(placed).c_str(), nullptr, flags, nullptr) != 0)
    return failed(errno, "make /etc/ld.so.cache read-only");
  return {};
}

Result<json::value> parse(std::string_view text, const char* what) {
  json::error_code error;
  auto value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) return fail(Code::kInvalidArgument, std::string(what) + ": not JSON: " + error.message());
  return value;
}

std::string text_in(const json::value& value, const char* key) {
  const auto* object = value.if_object();
  const auto* member = object == nullptr ? nullptr : object->if_contains(key);
  const auto* text = member == nullptr ? nullptr : member->if_string();
  return text == nullptr ? std::string() : std::string(text->data(), text->size());
}

}  // namespace

Result<std::string> container_root(std::string_view state) {
  CARVE_TRY(const auto parsed, parse(state, "state"));
  const std::string bundle = text_in(parsed, "bundle");
  if (bundle.empty()) return fail(Code::kInvalidArgument, "state: no bundle");
  const std::string path = bundle + "/config.json";
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed(errno, "open " + path);
  CARVE_TRY(const auto text, read_whole(fd, path));
  CARVE_TRY(const auto config, parse(text, "config.json"));
  const auto* object = config.if_object();
  const auto* member = object == nullptr ? nullptr : object->if_contains("root");
  const std::string root = member == nullptr ? std::string() : text_in(*member, "path");
  if (root.empty()) return fail(Code::kInvalidArgument, "config.json: no root");
  return root.front() == '/' ? root : bundle + "/" + root;
}

Result<void> add_to_cache(const std::string& root, const std::vector<codec::LoaderEntry>& libraries) {
  const Fd top(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top) return failed(errno, "open " + root);
  const Fd folder = open_inside(top, "etc", O_PATH | O_DIRECTORY);
  if (!folder) return fail(Code::kFailedPrecondition, "the container has no /etc");
  CARVE_TRY(const auto before, read_cache(top));
  CARVE_TRY(const auto after, codec::with_libraries(before, libraries));
  if (after == before) return {};
  if (is_own(top, folder)) {
    const auto written = replace(folder, after);
    if (written) return written;
  }
  return cover(top, folder, after);
}

}  // namespace carve::cdi
