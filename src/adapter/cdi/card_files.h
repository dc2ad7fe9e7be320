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
  std::optional<std::uint32_t> group;  // members can open the files too: mode 0660; nullopt: mode 0600
  std::string dev = "/dev";

  /// What Carve sets on the file of a card.
  [[nodiscard]] FileRights rights() const { return {group ? 0660U : 0600U, 0, group.value_or(0)}; }
};

/// The path of the record in a state folder.
[[nodiscard]] std::string card_file_record(const std::string& state_folder);

/// Closes only the files of single cards. /dev/nvidiactl and /dev/nvidia-uvm belong to all cards together. Every call
/// of the driver needs them, also calls that only query. Without the file of a card they give no access to its memory.
/// NVIDIA's container toolkit also isolates containers by the file of the card alone.
///
/// A slice's nodes are in <dev>/carve/<slice>/, root:root 0666 like the driver's own, in a folder that an access list
/// opens to root and the slice's user only. They are below /dev because /run is mounted nodev on most hosts.
///   source  systemd's mount table (/run: nosuid, nodev); nvidia-modprobe's default DeviceFileMode 0666
class OwnedCardFiles final : public CardFiles {
 public:
  explicit OwnedCardFiles(CardFileOptions options) : options_(std::move(options)) {}
  Result<std::vector<std::string>> own(const std::vector<int>& minors) override;
  Result<void> give(const std::string& slice, std::uint32_t user, const std::vector<int>& minors) override;
  Result<void> withdraw(const std::string& slice) override;
  Result<std::vector<std::string>> list() override;
  [[nodiscard]] std::string folder_of(const std::string& slice) const override;
  [[nodiscard]] std::uint32_t mode() const override { return options_.rights().mode; }
  [[nodiscard]] std::uint32_t group() const override { return options_.rights().gid; }

 private:
  /// True: the file belonged to Carve, and something has changed it since.
  Result<bool> own_one(int card, std::optional<std::uint32_t> driver_major);
  Result<void> load();

  CardFileOptions options_;
  // used by own() only
  std::optional<SavedModes> saved_;  // as on the disk; nullopt: not read yet
  /// Cards that this process has closed. A file that a killed agent left half changed is not reported.
  std::set<int> taken_;
};

/// Restores owner and mode of the recorded files, removes all slices' nodes, then the record. A file that no longer
/// exists, or that is another device or a link now, is not changed. Without a record only slices' nodes are removed.
///   returns a text for each existing file that was not changed
///   errors  kDataLoss: the record is damaged; system errors; then the record remains
[[nodiscard]] Result<std::vector<std::string>> restore_card_files(const CardFileOptions& options);

}  // namespace carve::cdi
