#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/slice.h"

namespace carve {

/// The part of a pod or claim for which a kubelet plugin prepared a slice.
struct PreparedFor {
  Owner owner;  // a pod or a claim
  std::string part;
  std::vector<std::string> pods;                   // UIDs of the pods that may hold the slice
  std::map<std::string, std::string> environment;  // what the slice's dialect sets inside the container
  bool ending = false;                             // unprepared: the slice ends with its last process
  friend bool operator==(const PreparedFor&, const PreparedFor&) = default;
};

/// What a node knows about one of its slices and the record does not say. codec/journal/slice_note_text.h writes and
/// reads it as text. It is a value: it does not say whether the slice exists.
struct SliceNote {
  bool keep = false;      // true: the slice lives until it is released or unprepared; false: until its cgroup is empty
  std::uint32_t uid = 0;  // the user who requested it
  bool in_private_folder = false;           // its folder is inside a folder of root
  std::optional<PreparedFor> prepared_for;  // nullopt: this machine granted it
  std::string name;                         // for people
  friend bool operator==(const SliceNote&, const SliceNote&) = default;
};

/// The limit of all texts of a note together, in bytes. Each pod counts 1 byte and each variable 2 bytes more, for its
/// separators. A byte of the environment other than `!` to `~` counts 3 bytes, as do `;` and `%`: they are escaped.
inline constexpr std::size_t kMaxNoteBytes = 4000;

/// All faults of the note's fields: an owner that is not a pod or claim, an illegal UID, part or pod, a variable that
/// no process can have, control characters in the name, too many bytes. Empty when the note is legal.
[[nodiscard]] std::vector<Error> validate(const SliceNote& note);

/// The bytes of the note's texts, as kMaxNoteBytes counts them.
[[nodiscard]] std::size_t bytes_of(const SliceNote& note);

}  // namespace carve
