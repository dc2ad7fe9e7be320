#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "adapter/cdi/container_cache.h"

// carve-hook: the program that container devices name as their createContainer hook. The host's container runtime
// executes it in the namespaces of a container that it creates, before the container's file system becomes the root. It
// is static, because the host's libraries are not known, and it reads no environment variable.
namespace carve {
namespace {

constexpr std::size_t kMostState = 1U << 20U;

std::string standard_input() {
  std::string text;
  char buffer[4096];
  while (text.size() < kMostState) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

Result<void> update_loader_cache(const std::vector<std::string>& paths) {
  std::vector<codec::LoaderEntry> libraries;
  for (const auto& path : paths) libraries.push_back({path.substr(path.rfind('/') + 1), path});
  CARVE_TRY(const auto root, cdi::container_root(standard_input()));
  return cdi::add_to_cache(root, libraries);
}

}  // namespace
}  // namespace carve

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2 || words.front() != "loader-cache") {
    std::fprintf(stderr, "usage: carve-hook loader-cache LIBRARY… (for container runtimes: docs/containers.md)\n");
    return 2;
  }
  // Only a damaged /etc fails the container: without entries in the loader's cache it finds the driver in the usual
  // folders.
  const auto done = carve::update_loader_cache({words.begin() + 1, words.end()});
  if (done) return 0;
  std::fprintf(stderr, "carve-hook: the loader's cache is not updated: %s\n", done.error().what.c_str());
  return done.error().code == carve::Code::kDataLoss ? 1 : 0;
}
