#pragma once

#include <sys/types.h>

#include <string>

// Death at a chosen point: the arbiter is killed just before the n-th call by which it changes what is on disk, or
// answers. The calls are wrapped by the linker (CMakeLists.txt), in the test's own program only.
namespace carve::arbiter_test::death_points {

/// From now on the calls of this process count; before the n-th one it gets SIGKILL. 0: they are only counted.
void arm(pid_t victim, int die_at);
/// Nobody's calls count any more. Returns how many did.
int disarm();
/// What the last one counted was: "unlink".
std::string last();

}  // namespace carve::arbiter_test::death_points
