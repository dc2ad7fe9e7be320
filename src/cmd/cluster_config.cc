#include "cmd/cluster_config.h"

#include "adapter/process/text_file.h"

namespace carve::cmd {

Result<ClusterConfig> read_cluster_config(const std::string& path) {
  CARVE_TRY(const auto text, process::read_text(path));
  return parse_cluster_config(text, path);
}

}  // namespace carve::cmd
