#pragma once

namespace carve {

/// As many descriptors as this process may have: the soft limit becomes the hard one (setrlimit(2)), for it and what it
/// starts. The usual soft limit, 1024, is from the time of select(). Where that is refused everything stays.
void raise_file_limit();

}  // namespace carve
