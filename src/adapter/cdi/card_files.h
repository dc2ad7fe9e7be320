#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapter/cdi/saved_modes.h"
#include "port/card_files.h"

namespace carve::cdi {

struct CardFileOptions {
  std::string record;                  // where the previous modes are stored
  std::string boot_id;                 // the kernel's
  std::optional<std::uint32_t> group;  // may open the files, too: mode 0660; without: 0600
  std::string dev = "/dev";
};

/// Where the record of a state folder is.
[[nodiscard]] std::string card_file_record(const std::string& state_folder);

/// Only the cards' own files are closed. /dev/nvidiactl and /dev/nvidia-uvm belong to all cards together: every call of
/// the driver needs them, the ones that only ask included, and without the file of a card they lead to no memory of it;
/// NVIDIA's container toolkit, too, keeps containers from a card by its own file alone.
///
/// A slice's nodes are in <dev>/carve/<slice>/, root:root 0666 as the driver makes its own, in a folder that root and
/// the slice's user pass by an access list. They are below /dev because /run is mounted nodev on most hosts.
///   source  systemd's mount table (/run: nosuid, nodev); nvidia-modprobe's default DeviceFileMode 0666
class OwnedCardFiles final : public CardFiles {
 public:
  explicit OwnedCardFiles(CardFileOptions options) : options_(std::move(options)) {}
  Result<std::vector<std::string>> own(const std::vector<int>& minors) override;
  Result<void> give(const std::string& slice, std::uint32_t user, const std::vector<int>& minors) override;
  Result<void> withdraw(const std::string& slice) override;
  Result<std::vector<std::string>> list() override;
  [[nodiscard]] std::string folder_of(const std::string& slice) const override;
  [[nodiscard]] std::uint32_t mode() const override { return options_.group ? 0660 : 0600; }
  [[nodiscard]] std::uint32_t group() const override { return options_.group.value_or(0); }

 private:
  /// True: it was Carve's and was found changed.
  Result<bool> own_one(int card, std::optional<std::uint32_t> driver_major);
  Result<void> load();
  [[nodiscard]] FileRights wanted() const { return {mode(), 0, group()}; }

  CardFileOptions options_;
  // of own() alone
  std::optional<SavedModes> saved_;  // as on the disk; nullopt: not read yet
  std::set<int> taken_;              // by this process: one that a killed agent left half taken was changed by nobody
};

/// Gives the recorded files their previous owner and mode, removes all slices' nodes, then the record. A file that is
/// gone, or is another device or a link by now, is left alone. Without a record only slices' nodes are removed.
///   returns a text for each file that was left alone and exists
///   errors  kDataLoss: the record is damaged; the system's; then the record stays
[[nodiscard]] Result<std::vector<std::string>> restore_card_files(const CardFileOptions& options);

}  // namespace carve::cdi
