#include "cmd/keep_files.h"

#include "adapter/process/text_file.h"

namespace carve::cmd {

Result<std::vector<std::string>> copy_changed_files(const std::string& from, const std::string& to) {
  constexpr mode_t kFolder = 0700;
  constexpr mode_t kFile = 0600;
  CARVE_TRY(const auto names, process::list_folder(from));
  CARVE_TRY_VOID(process::make_folders(to, kFolder));
  std::vector<std::string> changed;
  for (const auto& name : names) {
    if (name.front() == '.') continue;
    CARVE_TRY(const auto wanted, process::read_text(from + "/" + name));
    const auto there = process::read_text(to + "/" + name);
    if (there && *there == wanted) continue;
    CARVE_TRY_VOID(process::replace_file(to + "/" + name, wanted, kFile));
    changed.push_back(name);
  }
  return changed;
}

}  // namespace carve::cmd
