#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace carve::cdi {

/// The folder around a slice's own, which root alone passes, and from now on this user too, who asked for the slice: an
/// engine that he runs without root mounts with his rights. Makes the folder where it is missing. It stays root's, and
/// an access list lets him in: who owns a folder can put another one in its place. Where the file system knows no such
/// lists root alone passes, and that is no error.
///   errors  what making the folder or writing its list says
Result<void> let_through(const std::string& gate, std::uint32_t user);

}  // namespace carve::cdi
