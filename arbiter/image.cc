#include "arbiter/image.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "arbiter/page_files.h"

namespace carve::arbiter {
namespace {

bool empty(int maps) {
  char first = 0;
  return pread(maps, &first, 1, 0) == 0;
}

/// An empty Fd: this thread shows no memory.
Fd maps_at(const std::string& path) {
  Fd maps(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return maps && empty(maps.get()) ? Fd() : std::move(maps);
}

}  // namespace

Image Image::of(std::int32_t pid) {
  Image image;
  const std::string process = "/proc/" + std::to_string(pid);
  image.maps_ = maps_at(process + "/maps");
  if (image.known()) return image;
  for (const std::string& thread : names_in(process + "/task")) {
    image.maps_ = maps_at(process + "/task/" + thread + "/maps");
    if (image.known()) break;
  }
  return image;
}

bool Image::gone() const { return known() && empty(maps_.get()); }

}  // namespace carve::arbiter
