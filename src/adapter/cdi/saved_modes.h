#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The record of the cards' device files before Carve closes them, and the next step for each file. Pure.
namespace carve::cdi {

/// Owner and mode of a file; the mode without the file type: 0666.
struct FileRights {
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  friend bool operator==(const FileRights&, const FileRights&) = default;
};

/// One device file. It is found below /dev by the card's number, never by a path from a record.
struct SavedMode {
  int card = 0;             // N of /dev/nvidiaN
  std::uint32_t major = 0;  // its device numbers; they detect another file at the same path
  std::uint32_t minor = 0;
  FileRights before;
  friend bool operator==(const SavedMode&, const SavedMode&) = default;
};

struct SavedModes {
  std::string boot_id;  // the kernel's: at a reboot /dev is created again
  std::vector<SavedMode> files;
  friend bool operator==(const SavedModes&, const SavedModes&) = default;
};

/// "card-files 1 <boot id>", a line "nvidia0 195:0 0666 0:0" per file, "end <number of files>".
[[nodiscard]] std::string encode_saved_modes(const SavedModes& saved);
///   errors  kDataLoss: not such a text, or an incomplete one
[[nodiscard]] Result<SavedModes> parse_saved_modes(std::string_view text);

/// The present state of a file.
struct FoundFile {
  bool is_device = false;   // a character device
  std::uint32_t major = 0;  // its numbers
  std::uint32_t minor = 0;
  FileRights rights;
};

enum class OwnStep : std::uint8_t {
  kNothing,      // it has Carve's rights, and its previous rights are recorded
  kSaveAndTake,  // record its rights, then set Carve's
  kTake,         // set Carve's; its previous rights are recorded: another program changed it, or a take was interrupted
  kLeave,        // it is not a device file of this card
};

/// The step that own() takes with a file.
///   saved         the record of this card; nullptr: there is none
///   driver_major  the major number of the driver's cards; nullopt: the kernel has no driver for them (a driver that
///                 simulates cards in user space creates files with other numbers)
[[nodiscard]] OwnStep own_step(const FoundFile& found, int card, const FileRights& wanted, const SavedMode* saved,
                               std::optional<std::uint32_t> driver_major);

/// True when the file is still the recorded device, so that its recorded rights may be restored.
[[nodiscard]] bool is_saved_device(const FoundFile& found, const SavedMode& saved);

}  // namespace carve::cdi
