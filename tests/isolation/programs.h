#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

// Random legal driver-API programs. They are generated from a seed, run in processes and threads with a library that
// the caller names, and reduced when they fail.
namespace carve::isolation {

enum class Verb : std::uint8_t {
  kAlloc, kPitch, kManaged, kArray, kMipmap, kHandle, kMapped, kAsync, kFromPool, kFree, kFreeInOrder,
  kMakeStream, kEndStream, kDelay, kSync,
  kMakePool, kEndPool, kTrimPool, kKeepAll, kUsePool,
  kMakeContext, kAttach, kDetach, kEndContext,
  kCapture, kNodes, kLaunch, kFreeNodes, kEndGraph, kTrimGraphs,
  kExport, kImport, kOpen, kNonsense, kInfo, kCount
};

/// One call or several that belong together. Objects are named by slots of the process.
struct Step {
  unsigned round = 0, process = 0, thread = 0;
  Verb verb = Verb::kInfo;
  unsigned slot = 0;     // the object that is created, used or destroyed
  unsigned with = 0;     // the stream, pool or context that it uses, depending on the verb
  unsigned current = 0;  // the card of the current primary context
  unsigned card = 0;     // the card that is named
  std::uint64_t bytes = 0;
};

inline constexpr unsigned kMostProcesses = 3, kMostThreads = 3, kMemorySlots = 12, kStreams = 6, kPools = 3;
inline constexpr unsigned kContexts = 2, kGraphs = 3, kBoard = 4, kCards = 2;
inline constexpr unsigned kMostSteps = 2048;
inline constexpr unsigned kNoStream = kStreams;     // the default stream
inline constexpr unsigned kOwnStream = kStreams + 1;  // the default stream of the thread (_ptsz)

struct Program {
  std::uint64_t seed = 0;
  unsigned processes = 1, threads = 1, rounds = 1;
  std::uint64_t room = 0;  // on each card, in addition to the primary contexts
  bool all_fits = false;   // all of it fits: a refusal is an error
  std::vector<Step> steps;  // in the order of the rounds
};

/// In an even round all threads work, each on its own slots of this round. In an odd round the first thread of each
/// process is alone and uses the shared objects.
Program generate(std::uint64_t seed);
std::string describe(const Step& step);

inline constexpr int kSkipped = -1;        // there is no such object (the step that creates it was left out)
inline constexpr int kRefusedBefore = -2;  // there is no object because its creation was refused
inline constexpr int kNeverRan = -3;

/// Memory shared by the processes of a run and their parent.
struct Shared {
  std::atomic<unsigned> arrived;  // processes at the end of a part, summed over all parts
  std::atomic<unsigned> opened;   // number of finished parts
  std::atomic<bool> stop;
  int results[kMostSteps];
  struct Notice {  // memory for other processes
    int state;     // 0 none, 1 a descriptor, 2 a handle, 3 refused, 4 freed again
    int pid, descriptor;
    char handle[64];
  } board[kMostProcesses][kBoard];
};

/// Runs one process's steps in the calling process, with the library of this name. Waits until the parent opens the
/// next part: after creating its contexts, after each round, and after freeing everything. Returns the exit code.
int run_process(const Program& program, unsigned process, Shared& run, const char* library);

}  // namespace carve::isolation
