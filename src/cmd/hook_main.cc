#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "adapter/cdi/container_cache.h"

// carve-hook: the program that container devices name as their createContainer hook. A container runtime of the host
// executes it in the namespaces of a container that it is creating, before that container's own file system becomes the
// root. It is static, since nothing is known of that host's libraries, and reads no variable of its environment.
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
  // A container without an entry in a cache starts and finds the driver in the usual folders: no reason to refuse it.
  if (const auto done = carve::update_loader_cache({words.begin() + 1, words.end()}); !done)
    std::fprintf(stderr, "carve-hook: the loader's cache stays as it is: %s\n", done.error().what.c_str());
  return 0;
}
