#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace carve::arbiter {

/// One file per account entry. The library maps it, a forked child inherits the mapping, exec and exit end it. So the
/// kernel's count of its readers tells whether the memory of a program is gone. A look into /proc/<pid>/maps would wait
/// for locks that a tenant can hold (in an exec that closes a file of a file system in user space). The files outlive
/// the arbiter. Their names, which tenants cannot write, say which process has the entry.
class Lifelines {
 public:
  struct Lifeline {
    std::string name;  // of the file
    std::uint32_t entry = 0;
    std::int32_t pid = 0;
    std::uint64_t process = 0;  // identity_of() the process
    bool sent = false;          // false: the library is older than lifelines, and only the process counts
  };
  enum class State { kHeld, kFree, kUnknown };  // kUnknown: no descriptor is left, for example

  /// Creates the folder, and a detached read-only clone of it.
  ///   errors  kPermissionDenied: mounting needs CAP_SYS_ADMIN
  static Result<Lifelines> open(const std::string& folder);

  /// False: the kernel gives no leases on files here (fs.leases-enable), so state() would know nothing.
  [[nodiscard]] bool supported() const { return supported_; }
  ///   pidfd  of the process; none: its identity is unknown
  ///   sent   the file is for the library; false in the result if !supported()
  Result<Lifeline> make(const std::string& slice, std::uint32_t entry, std::int32_t pid, const Fd& pidfd,
                        bool sent) const;
  /// The descriptor for a tenant. It cannot be written, and cannot be reopened for writing through /proc/self/fd. As
  /// long as any copy of it is open, mapped or in a message, the lifeline is held.
  [[nodiscard]] Result<Fd> tenant_descriptor(const Lifeline& lifeline) const;
  /// Whether any process holds it. Cost: three system calls, none of which waits for a process.
  [[nodiscard]] State state(const Lifeline& lifeline) const;
  void remove(const Lifeline& lifeline) const;
  /// Removes the lifelines of a slice.
  void remove_all(const std::string& slice) const;
  /// The lifelines of a slice; for the next arbiter.
  [[nodiscard]] std::vector<Lifeline> of(const std::string& slice) const;

 private:
  std::string folder_;
  Fd read_only_;
  bool supported_ = false;
};

/// A number that no other process of this boot has; 0 if the kernel gives none (before Linux 6.9). Not the start time
/// in /proc/<pid>/stat: reading that may wait for the process.
std::uint64_t identity_of(const Fd& pidfd);

}  // namespace carve::arbiter
