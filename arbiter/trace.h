#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "lease/arbiter.h"

// The inputs and the decisions of a card's lease::Arbiter, written as they happen. In a replay the same inputs must
// lead to the same decisions. One file per card, written by one thread.
namespace carve::arbiter {

class Trace {
 public:
  /// If `path` is empty, nothing is written. At the first failed write the trace ends, and `log` gets a line.
  static Result<Trace> create(const std::string& path, Log& log);

  void added(int slice, const lease::Terms& terms);
  void removed(int slice);
  void changed(int slice, const lease::Terms& terms);
  /// After the step: its inputs, and every grant that is in force now.
  void stepped(std::uint64_t now, const lease::Arbiter& arbiter, const lease::Observation* seen);

 private:
  struct Close {
    Log* log;
    void operator()(std::FILE* file) const;
  };
  template <class T>
  void put(const T& value);
  std::unique_ptr<std::FILE, Close> file_;
};

struct Replayed {
  std::uint64_t steps = 0;
  std::uint64_t decisions = 0;  // one per step and slice: grants compared
  std::uint64_t changes = 0;    // of them, grants that differed from the slice's previous one
  std::uint64_t differ = 0;     // of the decisions, those that the replay made differently
  int most_slices = 0;
  /// The length of the complete records, in bytes, if an incomplete one follows: the arbiter was killed, its disk was
  /// full, or the file was cut. 0: the trace is complete.
  std::uint64_t truncated_at = 0;
};

/// Replays a trace with a new lease::Arbiter.
///   alter_step  the number of the step to move by 3 ms, to show that the comparison can fail; −1: none
///   errors      kNotFound; kDataLoss: not a trace of this version, or a record that no arbiter writes (the text names
///               its place and its fault); the system's, for a file that cannot be read
Result<Replayed> replay(const std::string& path, std::int64_t alter_step = -1);

}  // namespace carve::arbiter
