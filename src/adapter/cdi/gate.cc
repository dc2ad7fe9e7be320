#include "adapter/cdi/gate.h"

#include <sys/xattr.h>

#include <array>
#include <cerrno>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

// An access list as the kernel takes it: a version, then entries by tag. x86 is little-endian, as the list is.
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

constexpr std::uint32_t kNobody = 0xFFFFFFFFU;
constexpr std::uint16_t kPass = 1;  // x: neither seen nor written
constexpr std::uint16_t kAll = 7;

AccessList list_for(std::uint32_t user) {
  return {2,
          {{{0x01, kAll, kNobody},     // the owner, root
            {0x02, kPass, user},
            {0x04, 0, kNobody},        // the owner's group
            {0x10, kPass, kNobody},    // the most that a named one may have
            {0x20, 0, kNobody}}}};     // everybody else
}

}  // namespace

Result<void> let_through(const std::string& gate, std::uint32_t user) {
  CARVE_TRY_VOID(make_folders(gate, 0700));
  const AccessList list = list_for(user);
  if (::setxattr(gate.c_str(), "system.posix_acl_access", &list, sizeof list, 0) != 0 && errno != EOPNOTSUPP) {
    return tl::unexpected(errno_error(errno, "let user " + std::to_string(user) + " pass " + gate));
  }
  return {};
}

}  // namespace carve::cdi
