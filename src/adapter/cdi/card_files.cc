#include "adapter/cdi/card_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "adapter/cdi/device_nodes.h"
#include "adapter/cdi/private_folder.h"
#include "adapter/process/text_file.h"
#include "base/fd.h"

namespace carve::cdi {
namespace {

/// A file held by its inode. A file that replaces it at the path later is not changed.
struct HeldFile {
  Fd fd;
  FoundFile found;
  [[nodiscard]] std::string handle() const { return "/proc/self/fd/" + std::to_string(fd.get()); }
};

std::string path_of(const std::string& dev, int card) { return dev + "/nvidia" + std::to_string(card); }

FoundFile found_from(const struct stat& info) {
  return {S_ISCHR(info.st_mode),
          ::major(info.st_rdev),
          ::minor(info.st_rdev),
          {info.st_mode & 07777U, info.st_uid, info.st_gid}};
}

/// nullopt: no such file. A symbolic link is not followed: the link itself is held, and it is not a device.
Result<std::optional<HeldFile>> hold_file(const std::string& path) {
  HeldFile file{Fd(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)), {}};
  if (!file.fd && errno == ENOENT) return std::nullopt;
  struct stat info = {};
  if (!file.fd || ::fstat(file.fd.get(), &info) != 0) return tl::unexpected(errno_error(errno, "inspect " + path));
  file.found = found_from(info);
  return std::optional<HeldFile>(std::move(file));
}

/// Closes the file first, so that at no moment more users can open it than before or after the change.
Result<void> set_rights(const HeldFile& file, const FileRights& rights, const std::string& path) {
  const std::string handle = file.handle();
  if (::chmod(handle.c_str(), 0600) != 0 || ::chown(handle.c_str(), rights.uid, rights.gid) != 0 ||
      ::chmod(handle.c_str(), rights.mode) != 0) {
    return tl::unexpected(errno_error(errno, "set owner and mode of " + path));
  }
  return {};
}

std::optional<std::uint32_t> driver_major() {
  const auto text = process::read_text("/proc/devices");
  return cards_major(character_devices(text ? *text : std::string()));
}

Result<void> make_slice_node(const std::string& path, std::uint32_t major, std::uint32_t minor) {
  CARVE_TRY(const auto there, hold_file(path));
  if (there && there->found.is_device && there->found.major == major && there->found.minor == minor &&
      there->found.rights == FileRights{0666, 0, 0}) {
    return {};
  }
  if (there && ::unlink(path.c_str()) != 0) return tl::unexpected(errno_error(errno, "remove " + path));
  if (::mknod(path.c_str(), S_IFCHR | 0600, makedev(major, minor)) != 0 || ::chmod(path.c_str(), 0666) != 0) {
    return tl::unexpected(errno_error(errno, "create " + path));
  }
  return {};
}

Result<void> remove_slice_folder(const std::string& folder) {
  const auto names = process::list_folder(folder);
  if (!names && names.error().code == Code::kNotFound) return {};
  for (const auto& name : names ? *names : std::vector<std::string>()) ::unlink((folder + "/" + name).c_str());
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) return tl::unexpected(errno_error(errno, "remove " + folder));
  return {};
}

std::string slices_folder(const std::string& dev) { return dev + "/carve"; }

/// Drops the records of another boot, because /dev was created again. The record of a file that still has the rights
/// that Carve sets remains: its /dev is on a disk.
void forget_other_boot(SavedModes* saved, const CardFileOptions& options) {
  if (saved->boot_id == options.boot_id) return;
  std::erase_if(saved->files, [&](const SavedMode& one) {
    const auto file = hold_file(path_of(options.dev, one.card));
    return !file || !*file || !is_saved_device((*file)->found, one) || (*file)->found.rights != options.rights();
  });
  saved->boot_id = options.boot_id;
}

Result<SavedModes> read_record(const std::string& path) {
  const auto text = process::read_text(path);
  if (!text && text.error().code == Code::kNotFound) return SavedModes();
  if (!text) return tl::unexpected(text.error());
  auto saved = parse_saved_modes(*text);
  if (!saved) return fail_in(path, saved.error());
  return saved;
}

}  // namespace

std::string card_file_record(const std::string& state_folder) { return state_folder + "/card-files"; }

Result<void> OwnedCardFiles::load() {
  if (saved_) return {};
  CARVE_TRY(auto saved, read_record(options_.record));
  forget_other_boot(&saved, options_);
  saved_ = std::move(saved);
  return {};
}

Result<bool> OwnedCardFiles::own_one(int card, std::optional<std::uint32_t> driver_major) {
  const std::string path = path_of(options_.dev, card);
  CARVE_TRY(const auto file, hold_file(path));
  if (!file) return false;
  auto row = std::find_if(saved_->files.begin(), saved_->files.end(),
                          [card](const SavedMode& one) { return one.card == card; });
  const SavedMode* known = row == saved_->files.end() ? nullptr : &*row;
  const FoundFile& found = file->found;
  const bool ours = taken_.count(card) != 0;
  switch (own_step(found, card, options_.rights(), known, driver_major)) {
    case OwnStep::kNothing:
      taken_.insert(card);
      return false;
    case OwnStep::kLeave:
      return fail(Code::kFailedPrecondition, path + ": not a device file of this card; it is not changed");
    case OwnStep::kTake:
      CARVE_TRY_VOID(set_rights(*file, options_.rights(), path));
      taken_.insert(card);
      return ours;
    case OwnStep::kSaveAndTake:
      break;
  }
  SavedModes next = *saved_;
  std::erase_if(next.files, [card](const SavedMode& one) { return one.card == card; });
  next.files.push_back({card, found.major, found.minor, found.rights});
  CARVE_TRY_VOID(process::replace_file(options_.record, encode_saved_modes(next), 0600));
  saved_ = std::move(next);
  CARVE_TRY_VOID(set_rights(*file, options_.rights(), path));
  taken_.insert(card);
  return false;
}

Result<std::vector<std::string>> OwnedCardFiles::own(const std::vector<int>& minors) {
  CARVE_TRY_VOID(load());
  const auto major = driver_major();
  std::vector<std::string> changed;
  std::string problems;
  Code code = Code::kInternal;
  for (const int card : minors) {
    const auto done = own_one(card, major);
    if (done && *done) changed.push_back(path_of(options_.dev, card));
    if (done) continue;
    problems += (problems.empty() ? "" : "; ") + done.error().what;
    code = done.error().code;
  }
  if (!problems.empty()) return fail(code, std::move(problems));
  return changed;
}

std::string OwnedCardFiles::folder_of(const std::string& slice) const {
  return slices_folder(options_.dev) + "/" + slice;
}

Result<void> OwnedCardFiles::give(const std::string& slice, std::uint32_t user, const std::vector<int>& minors) {
  CARVE_TRY_VOID(process::make_folders(slices_folder(options_.dev), 0711));
  const std::string folder = folder_of(slice);
  if (user == 0) {
    CARVE_TRY_VOID(process::make_folders(folder, 0700));
  } else {
    CARVE_TRY_VOID(allow_through(folder, user));
  }
  for (const int card : minors) {
    CARVE_TRY(const auto file, hold_file(path_of(options_.dev, card)));
    if (!file) continue;
    if (!file->found.is_device) {
      return fail(Code::kFailedPrecondition, path_of(options_.dev, card) + ": not a device file");
    }
    CARVE_TRY_VOID(make_slice_node(path_of(folder, card), file->found.major, file->found.minor));
  }
  return {};
}

Result<void> OwnedCardFiles::withdraw(const std::string& slice) { return remove_slice_folder(folder_of(slice)); }

Result<std::vector<std::string>> OwnedCardFiles::list() {
  auto names = process::list_folder(slices_folder(options_.dev));
  if (!names && names.error().code == Code::kNotFound) return std::vector<std::string>();
  return names;
}

Result<std::vector<std::string>> restore_card_files(const CardFileOptions& options) {
  const std::string folder = slices_folder(options.dev);
  const auto slices = process::list_folder(folder);
  for (const auto& slice : slices ? *slices : std::vector<std::string>()) {
    CARVE_TRY_VOID(remove_slice_folder(folder + "/" + slice));
  }
  ::rmdir(folder.c_str());
  CARVE_TRY(auto saved, read_record(options.record));
  forget_other_boot(&saved, options);
  std::vector<std::string> left;
  for (const auto& one : saved.files) {
    const std::string path = path_of(options.dev, one.card);
    CARVE_TRY(const auto file, hold_file(path));
    if (!file) continue;
    if (!is_saved_device(file->found, one)) {
      left.push_back(path + " is another file now");
    } else {
      CARVE_TRY_VOID(set_rights(*file, one.before, path));
    }
  }
  if (::unlink(options.record.c_str()) != 0 && errno != ENOENT) {
    return tl::unexpected(errno_error(errno, "remove " + options.record));
  }
  return left;
}

}  // namespace carve::cdi
