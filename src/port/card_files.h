#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// The cards' device files (/dev/nvidia0, …) of a machine on which they belong to Carve (`own-devices = on`): outside
/// slices only root opens them. A slice gets nodes of its own for its cards, in a folder that only root and the slice's
/// user pass. own() is called by one thread at a time; the others are safe from any thread.
class CardFiles {
 public:
  virtual ~CardFiles() = default;
  /// Closes the files of these cards. The previous owner and mode of each is durable before it is changed, and is
  /// recorded once: what Carve itself set is never recorded as previous. A missing file is no error. To be repeated:
  /// the vendor's tools re-create the files and set their mode.
  ///   returns the paths that were Carve's and were found changed; they are closed again
  ///   errors  kDataLoss: the record of previous modes is damaged, nothing was changed; kFailedPrecondition: a path is
  ///           no device file of this card and was left alone; the system's
  ///   cost    three system calls per card where nothing changed
  virtual Result<std::vector<std::string>> own(const std::vector<int>& minors) = 0;
  /// Makes the slice's nodes of these cards; success when they exist. A card without a device file gets none.
  ///   errors  the system's
  virtual Result<void> give(const std::string& slice, std::uint32_t user, const std::vector<int>& minors) = 0;
  /// Removes them. What has one open keeps it. Success when there are none.
  virtual Result<void> withdraw(const std::string& slice) = 0;
  /// Slices that have nodes.
  virtual Result<std::vector<std::string>> list() = 0;
  /// The folder of a slice's nodes. No I/O.
  [[nodiscard]] virtual std::string folder_of(const std::string& slice) const = 0;
  /// Mode and group that the cards' own files are set to; their owner is root. No I/O.
  [[nodiscard]] virtual std::uint32_t mode() const = 0;
  [[nodiscard]] virtual std::uint32_t group() const = 0;
};

}  // namespace carve
