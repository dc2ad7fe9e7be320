#include "tests/isolation/programs.h"

#include <random>

namespace carve::isolation {

namespace {

constexpr std::uint64_t kKiB = 1U << 10;
constexpr std::uint64_t kMebi = 1U << 20;
constexpr std::uint64_t kSizes[] = {1,        512,       4 * kKiB,      300 * kKiB, kMebi - 1,  kMebi,
                                    2 * kMebi, 2 * kMebi, 2 * kMebi + 1, 7 * kMebi,  33 * kMebi, 64 * kMebi};

struct Word {
  const char* name;
  unsigned weight;
  bool alone;  // only while the other threads of the process do nothing
};
constexpr Word kWords[] = {
    {"cuMemAlloc", 10, false},
    {"cuMemAllocPitch", 3, false},
    {"cuMemAllocManaged", 3, false},
    {"cuArrayCreate", 3, false},
    {"cuMipmappedArrayCreate", 3, false},
    {"cuMemCreate", 5, false},
    {"cuMemCreate, cuMemMap, cuMemRelease", 5, false},
    {"cuMemAllocAsync", 10, false},
    {"cuMemAllocFromPoolAsync", 8, false},
    {"free", 16, false},
    {"cuMemFreeAsync", 10, false},
    {"cuStreamCreate", 4, false},
    {"cuStreamDestroy", 2, false},
    {"cuLaunchHostFunc", 4, false},
    {"cuStreamSynchronize", 4, false},
    {"cuMemPoolCreate", 4, false},
    {"cuMemPoolDestroy", 4, true},
    {"cuMemPoolTrimTo", 2, false},
    {"cuMemPoolSetAttribute, keep all", 2, false},
    {"cuDeviceSetMemPool", 4, true},
    {"cuCtxCreate", 4, true},
    {"cuCtxAttach", 2, true},
    {"cuCtxDetach", 4, true},
    {"cuCtxDestroy", 4, true},
    {"capture of cuMemAllocAsync, instantiated", 4, false},
    {"cuGraphAddMemAllocNode of both cards, instantiated", 4, false},
    {"cuGraphLaunch", 6, false},
    {"cuMemFree of nodes", 5, false},
    {"cuGraphExecDestroy", 4, false},
    {"cuDeviceGraphMemTrim", 2, false},
    {"export", 4, false},
    {"cuMemImportFromShareableHandle", 4, false},
    {"cuIpcOpenMemHandle", 4, false},
    {"nonsense", 3, false},
    {"cuMemGetInfo", 3, false},
};
static_assert(std::size(kWords) == static_cast<std::size_t>(Verb::kCount));

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {
    program_.seed = seed;
    program_.processes = 1 + below(kMostProcesses);
    program_.threads = 1 + below(kMostThreads);
    program_.rounds = 4 + 2 * below(4);
    program_.roomy = below(4) == 0;
    constexpr std::uint64_t kRooms[] = {66, 130, 257, 400};
    program_.room = (program_.roomy ? 8192 : kRooms[below(4)]) * kMebi;
  }

  Program make() {
    for (round_ = 0; round_ < program_.rounds; ++round_) {
      const bool alone = round_ % 2 == 1;
      for (unsigned process = 0; process < program_.processes; ++process) {
        for (unsigned thread = 0; thread < (alone ? 1 : program_.threads); ++thread) {
          const unsigned length = 2 + below(alone ? 5 : 9);
          for (unsigned i = 0; i < length; ++i) add(process, thread, alone);
        }
      }
    }
    return program_;
  }

 private:
  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }

  /// One of `count` slots that the thread may touch in this round; all of them when it is alone.
  unsigned own(unsigned count, unsigned thread, bool alone) {
    for (unsigned turn = 0; turn < 64; ++turn) {
      const unsigned slot = below(count);
      if (alone || (slot + round_ / 2) % program_.threads == thread) return slot;
    }
    return count;
  }
  unsigned own_stream(unsigned thread, bool alone) {
    const unsigned kind = below(4);
    return kind == 0 ? kNoStream : kind == 1 ? kOwnStream : own(kStreams, thread, alone);
  }

  Verb choose(bool alone) {
    unsigned all = 0;
    for (const Word& word : kWords) all += word.alone && !alone ? 0 : word.weight;
    unsigned at = below(all);
    for (unsigned verb = 0;; ++verb) {
      const unsigned weight = kWords[verb].alone && !alone ? 0 : kWords[verb].weight;
      if (at < weight) return static_cast<Verb>(verb);
      at -= weight;
    }
  }

  void add(unsigned process, unsigned thread, bool alone) {
    Step step;
    step.round = round_;
    step.process = process;
    step.thread = thread;
    step.verb = choose(alone);
    step.current = below(kCards);
    step.card = below(kCards);
    step.bytes = kSizes[below(std::size(kSizes))];
    step.slot = own(kMemorySlots, thread, alone);
    switch (step.verb) {
      case Verb::kAlloc: case Verb::kPitch: case Verb::kManaged: case Verb::kArray: case Verb::kMipmap:
        step.with = below(3) == 0 ? 1 + below(kContexts) : 0;
        break;
      case Verb::kAsync: case Verb::kFreeInOrder:
        step.with = own_stream(thread, alone);
        break;
      case Verb::kMakeStream: case Verb::kEndStream: case Verb::kDelay: case Verb::kSync:
        step.slot = own(kStreams, thread, alone);
        break;
      case Verb::kFromPool: case Verb::kTrimPool: case Verb::kKeepAll: case Verb::kMakePool: case Verb::kEndPool:
      case Verb::kUsePool:
        step.with = own(kPools, thread, alone);
        break;
      case Verb::kMakeContext: case Verb::kAttach: case Verb::kDetach: case Verb::kEndContext:
        step.slot = below(kContexts);
        break;
      case Verb::kCapture: case Verb::kNodes: case Verb::kLaunch: case Verb::kFreeNodes: case Verb::kEndGraph:
        step.slot = own(kGraphs, thread, alone);
        step.with = own(kStreams, thread, alone);
        break;
      case Verb::kExport:
        step.with = own(kBoard, thread, alone);
        break;
      case Verb::kImport: case Verb::kOpen:
        step.with = below(kBoard) * kMostProcesses + below(program_.processes);
        break;
      case Verb::kNonsense:
        step.with = below(8);
        break;
      default:
        break;
    }
    // What is on the board is put there in one kind of round and taken in the other, so that no two meet.
    const bool taken = step.verb == Verb::kImport || step.verb == Verb::kOpen;
    if ((taken && alone) || (step.verb == Verb::kExport && !alone)) return;
    if (program_.steps.size() < kMostSteps) program_.steps.push_back(step);
  }

  std::mt19937_64 random_;
  Program program_;
  unsigned round_ = 0;
};

}  // namespace

Program generate(std::uint64_t seed) { return Generator(seed).make(); }

std::string describe(const Step& step) {
  const auto number = [](auto value) { return std::to_string(value); };
  return "round " + number(step.round) + " process " + number(step.process) + " thread " + number(step.thread) + ": " +
         kWords[static_cast<unsigned>(step.verb)].name + " slot " + number(step.slot) + " with " + number(step.with) +
         " card " + number(step.card) + " (current " + number(step.current) + ") bytes " + number(step.bytes);
}

}  // namespace carve::isolation
