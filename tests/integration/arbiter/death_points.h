#pragma once

#include <sys/types.h>

#include <string>

// Death at a chosen point: the arbiter is killed just before the n-th call that changes the disk or sends a reply. The
// linker wraps these calls (CMakeLists.txt), only in the test's own program.
namespace carve::arbiter_test::death_points {

/// Counts the calls of process `victim` from now on and kills it with SIGKILL before the n-th. 0: only counts them.
void arm(pid_t victim, int die_at);
/// Stops counting. Returns the number of counted calls.
int disarm();
/// The name of the last counted call, such as "unlink".
std::string last();

}  // namespace carve::arbiter_test::death_points
