#include "adapter/cdi/private_folder.h"

#include <sys/xattr.h>

#include <array>
#include <cerrno>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

// An access list in the kernel's format: a version, then entries by tag. The list is little-endian, like x86.
//   source  Linux include/uapi/linux/posix_acl_xattr.h and posix_acl.h
struct Entry {
  std::uint16_t tag;
  std::uint16_t rights;
  std::uint32_t id;
};
struct AccessList {
  std::uint32_t version;
  std::array<Entry, 5> entries;
};
static_assert(sizeof(AccessList) == 44);

constexpr std::uint32_t kNoId = 0xFFFFFFFFU;
constexpr std::uint16_t kPass = 1;  // x: traverse; neither list nor write
constexpr std::uint16_t kAll = 7;

AccessList list_for(std::uint32_t user) {
  return {2,
          {{{0x01, kAll, kNoId},  // the owner, root
            {0x02, kPass, user},
            {0x04, 0, kNoId},      // the owner's group
            {0x10, kPass, kNoId},  // the mask: the maximum for named users
            {0x20, 0, kNoId}}}};   // all others
}

}  // namespace

Result<void> allow_through(const std::string& folder, std::uint32_t user) {
  CARVE_TRY_VOID(process::make_folders(folder, 0700));
  const AccessList list = list_for(user);
  if (::setxattr(folder.c_str(), "system.posix_acl_access", &list, sizeof list, 0) != 0 && errno != EOPNOTSUPP) {
    return tl::unexpected(errno_error(errno, "allow user " + std::to_string(user) + " to traverse " + folder));
  }
  return {};
}

}  // namespace carve::cdi
