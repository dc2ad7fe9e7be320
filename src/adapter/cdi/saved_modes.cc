#include "adapter/cdi/saved_modes.h"

#include <cstdio>
#include <sstream>

namespace carve::cdi {
namespace {

constexpr char kTitle[] = "card-files";
constexpr unsigned kMostMode = 07777;

tl::unexpected<Error> damaged(const std::string& what) { return fail(Code::kDataLoss, "saved modes: " + what); }

Result<SavedMode> file_in(const std::string& line) {
  SavedMode file;
  FileRights& before = file.before;
  int end = 0;
  const int read = std::sscanf(line.c_str(), "nvidia%d %u:%u %o %u:%u%n", &file.card, &file.major, &file.minor,
                               &before.mode, &before.uid, &before.gid, &end);
  if (read != 6 || static_cast<std::size_t>(end) != line.size() || file.card < 0 || before.mode > kMostMode) {
    return damaged("not a line of a device file: \"" + line.substr(0, 64) + "\"");
  }
  return file;
}

}  // namespace

std::string encode_saved_modes(const SavedModes& saved) {
  std::string text = std::string(kTitle) + " 1 " + saved.boot_id + "\n";
  for (const auto& file : saved.files) {
    char line[128];
    std::snprintf(line, sizeof line, "nvidia%d %u:%u %04o %u:%u\n", file.card, file.major, file.minor, file.before.mode,
                  file.before.uid, file.before.gid);
    text += line;
  }
  return text + "end " + std::to_string(saved.files.size()) + "\n";
}

Result<SavedModes> parse_saved_modes(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  SavedModes saved;
  std::string title;
  int version = 0;
  if (!std::getline(lines, line)) return damaged("empty");
  std::istringstream first(line);
  if (!(first >> title >> version) || title != kTitle || version != 1) return damaged("not version 1");
  first >> saved.boot_id;
  while (std::getline(lines, line)) {
    if (line == "end " + std::to_string(saved.files.size()) && !lines.eof()) return saved;
    CARVE_TRY(auto file, file_in(line));
    saved.files.push_back(file);
  }
  return damaged("the last line is missing");
}

OwnStep own_step(const FoundFile& found, int card, const FileRights& wanted, const SavedMode* saved,
                 std::optional<std::uint32_t> driver_major) {
  const bool of_driver =
      !driver_major || (found.major == *driver_major && found.minor == static_cast<std::uint32_t>(card));
  if (!found.is_device || !of_driver) return OwnStep::kLeave;
  if (saved == nullptr || !is_saved_device(found, *saved)) return OwnStep::kSaveAndTake;
  return found.rights == wanted ? OwnStep::kNothing : OwnStep::kTake;
}

bool is_saved_device(const FoundFile& found, const SavedMode& saved) {
  return found.is_device && found.major == saved.major && found.minor == saved.minor;
}

}  // namespace carve::cdi
