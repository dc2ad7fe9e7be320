#pragma once

#include <string>
#include <vector>

#include "abi/page.h"
#include "base/fd.h"
#include "base/result.h"

// The storage of the pages. Grant pages are files on a tmpfs of the arbiter. They outlive the arbiter, and only the
// arbiter can write them: the kernel does not allow a tenant to reopen its descriptor for writing. Account pages are
// sealed memfds.
namespace carve::arbiter {

/// The names in a folder, without hidden files. Empty if the folder does not exist.
std::vector<std::string> names_in(const std::string& folder);

/// A detached read-only clone of the mount at this folder: a descriptor that was opened through it cannot be reopened
/// for writing.
///   errors  kPermissionDenied: mounting needs CAP_SYS_ADMIN
Result<Fd> read_only_clone(const std::string& folder);

/// How the name of an account page's memfd begins.
inline constexpr char kAccountName[] = "carve-account-";

/// A mapping of one page. The destructor unmaps it.
template <class Page>
class Mapped {
 public:
  Mapped() = default;
  explicit Mapped(Page* page) : page_(page) {}
  Mapped(Mapped&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  Mapped& operator=(Mapped&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { unmap(page_); }
  Page* operator->() const { return page_; }
  Page& operator*() const { return *page_; }
  [[nodiscard]] Page* get() const { return page_; }

 private:
  static void unmap(Page* page);
  Page* page_ = nullptr;
};

struct AccountFile {
  Fd fd;
  std::uint64_t inode = 0;
  Mapped<abi::AccountPage> page;
};

class PageFiles {
 public:
  /// Creates a detached read-only clone of `folder`. Mounts a tmpfs on the folder first, unless it is on a tmpfs
  /// already: a mount that is created in a container ends with the container, but files on the host's /run outlive it.
  ///   errors  kPermissionDenied: mounting needs CAP_SYS_ADMIN
  static Result<PageFiles> open(const std::string& folder);

  /// Maps the grant page `name` writable. Creates a zeroed page if there is none.
  ///   errors  kResourceExhausted: the file system is full
  Result<Mapped<abi::GrantPage>> grant(const std::string& name);
  /// The descriptor for a tenant. It cannot be written, and cannot be reopened for writing through /proc/self/fd.
  Result<Fd> tenant_descriptor(const std::string& name) const;
  void remove(const std::string& name) const;
  [[nodiscard]] bool exists(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const { return names_in(folder_); }
  /// Unmounts what open() mounted. For a clean stop without slices.
  void unmount() const;

  /// Creates an account page. `name` appears in /proc/<pid>/maps of its clients.
  static Result<AccountFile> make_account(const std::string& name);
  /// Maps an account page from a descriptor that came from the agent or from a client's mapping.
  ///   errors  kInvalidArgument: not a memfd of the right size
  static Result<AccountFile> map_account(Fd fd);

 private:
  std::string folder_;
  Fd read_only_;
};

}  // namespace carve::arbiter
