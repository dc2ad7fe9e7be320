#pragma once

namespace carve::process {

/// Raises the soft limit on file descriptors to the hard limit (setrlimit(2)), for this process and its children. The
/// usual soft limit, 1024, dates from select(). If the kernel refuses, the limit stays unchanged.
void raise_file_limit();

}  // namespace carve::process
