#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/journal/slice_note.h"

// A slice's note as the text of a journal event: words of `key=value` in this order, each after one space, without
// tabs or line ends. The name is last and extends to the end.
//
//   keep=0|1 uid=<number> v=1 [gated=1]
//     [owner=pod|claim/<UID> part=<part> [pods=<UID>,…] [env=<key>=<value>;…] [ending=1]] name=<name>
//
// In keys and values of the environment, `%`, `;` and every byte other than `!` to `~` are escaped as % and two upper
// case hex digits. Nothing else is, because a node's agent may be replaced by an earlier release, which does not know
// the escapes: values that it could have written (commas and = included) must look as it wrote them. Such a release
// skips words that it does not know, expects keep= at the start, and reads at most kMaxNoteText bytes.
//
// Earlier releases wrote the same words without v=, and escaped nothing.
namespace carve::codec {

inline constexpr int kSliceNoteVersion = 1;
/// The longest text that is written or read, in bytes. Every legal note fits.
inline constexpr std::size_t kMaxNoteText = 4096;

/// The note as text of version 1. Equal notes give equal bytes.
///   errors  those of validate(note), so that decode_slice_note() accepts all that is written
[[nodiscard]] Result<std::string> encode_slice_note(const SliceNote& note);

/// Reads a note. With v=1 it accepts exactly what encode_slice_note() writes. Without v= the text is an earlier
/// release's: unknown words are skipped, a field that is missing or illegal keeps its default, and a name that would
/// make the note too long is shortened.
///   errors  kInvalidArgument (with the field and the fault), kUnimplemented (another version)
///   cost    O(text); never throws
[[nodiscard]] Result<SliceNote> decode_slice_note(std::string_view text);

}  // namespace carve::codec
