#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// The cards' device files (/dev/nvidia0, …) of a machine on which they belong to Carve (`own-devices = on`): outside
/// slices only root can open them. A slice gets its own nodes of its cards, in a folder that only root and the slice's
/// user can pass. One thread at a time calls own(); the other functions are safe from any thread.
class CardFiles {
 public:
  virtual ~CardFiles() = default;
  /// Closes the files of these cards. The previous owner and mode of a file is durable before the file is changed, and
  /// is recorded once: the mode that Carve sets is never recorded as previous. A missing file is not an error. Call it
  /// repeatedly, because the vendor's tools re-create the files and set their mode.
  ///   returns the paths that belonged to Carve and that another program had changed; they are closed again
  ///   errors  kDataLoss: the record of previous modes is damaged, no file was changed; kFailedPrecondition: a path is
  ///           not a device file of this card and was not changed; system errors
  ///   cost    three system calls per card where nothing changed
  virtual Result<std::vector<std::string>> own(const std::vector<int>& minors) = 0;
  /// Creates the slice's nodes of these cards; success when they exist. A card without a device file gets no node.
  ///   errors  system errors
  virtual Result<void> give(const std::string& slice, std::uint32_t user, const std::vector<int>& minors) = 0;
  /// Removes the slice's nodes. A process that has one open keeps it. Success when there are none.
  virtual Result<void> withdraw(const std::string& slice) = 0;
  /// The slices that have nodes.
  virtual Result<std::vector<std::string>> list() = 0;
  /// The folder of a slice's nodes. No I/O.
  [[nodiscard]] virtual std::string folder_of(const std::string& slice) const = 0;
  /// Mode and group that the cards' own files are set to; their owner is root. No I/O.
  [[nodiscard]] virtual std::uint32_t mode() const = 0;
  [[nodiscard]] virtual std::uint32_t group() const = 0;
};

}  // namespace carve
