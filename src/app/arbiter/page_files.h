#pragma once

#include <map>
#include <string>
#include <vector>

#include "abi/page.h"
#include "base/fd.h"
#include "base/result.h"

// Where the pages live. Grant pages are files on a tmpfs of the arbiter's own: they outlive it, it alone can write
// them, and tenants get descriptors that the kernel will not let anyone open for writing again. Account pages are
// sealed memfds.
namespace carve::arbiter {

/// What is in a folder, hidden files aside; nothing where there is no folder.
std::vector<std::string> names_in(const std::string& folder);

/// A mapping of one page, unmapped with its owner.
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
  /// Makes a detached read-only clone of `folder`, which gets a tmpfs of its own unless it lies on one already: in a
  /// container a mount of its own would end with it, while what lies on the host's /run outlives the container.
  ///   errors  kPermissionDenied: mounting needs CAP_SYS_ADMIN
  static Result<PageFiles> open(const std::string& folder);

  /// Maps the grant page `name` writable; makes it, zeroed, when there is none.
  ///   errors  kResourceExhausted: the file system is full
  Result<Mapped<abi::GrantPage>> grant(const std::string& name);
  /// What a tenant gets: cannot be written, nor opened again for writing through /proc/self/fd.
  Result<Fd> tenant_descriptor(const std::string& name) const;
  void remove(const std::string& name) const;
  [[nodiscard]] bool exists(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const { return names_in(folder_); }
  /// Unmounts what open() mounted; for a clean stop without slices.
  void unmount() const;

  /// A new account page; `name` shows in /proc/<pid>/maps of its clients.
  static Result<AccountFile> make_account(const std::string& name);
  /// Maps one that came back from the agent or from a client's mapping.
  ///   errors  kInvalidArgument: not a memfd of the right size
  static Result<AccountFile> map_account(Fd fd);
  /// The account page that a living client still maps; kNotFound when none does. Anybody can make a memfd of that
  /// name: the inode tells which one was ours. Cost: a walk through /proc.
  static Result<AccountFile> find_account(const std::string& name, std::uint64_t inode);
  /// How often the process maps the account page for writing: once for each library instance that registered. One that
  /// only reads (NVML's) holds no slot. 0 for a process that is gone or has no memory (the kernel's own threads); one
  /// whose first thread has ended is asked through another one.
  ///   errors  any: it cannot be told now (no descriptor is left, all its threads ended while they were looked at)
  static Result<int> count_mappings(std::int32_t pid, const std::string& name, std::uint64_t inode);

  /// Where the process maps the lifeline of this slot (abi/page.h), as /proc/<pid>/map_files spells it; empty: nowhere.
  /// Cost: reads its list of mappings.
  ///   errors  any: it cannot be told now
  static Result<std::string> lifeline(std::int32_t pid, const std::string& name, std::uint64_t inode,
                                      std::uint32_t slot);
  /// The same of every slot, in any of the processes that show their mappings. Cost: reads the mappings of all of them.
  static std::map<std::uint32_t, std::string> lifelines(const std::string& name, std::uint64_t inode);
  /// The living processes that have inherited the lifeline at this place, and those of which that cannot be told now.
  /// Cost: a look at each process of the machine.
  ///   errors  any: no process can be looked at now
  static Result<std::vector<std::int32_t>> heirs(const std::string& place, const std::string& name,
                                                 std::uint64_t inode, std::uint32_t slot);

 private:
  std::string folder_;
  Fd read_only_;
};

}  // namespace carve::arbiter
