#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model/record.h"

namespace carve::codec {

/// The annotation of a Pod that carries the decision about it.
inline constexpr std::string_view kRecordAnnotation = "carve.elasticgpu.io/record";
/// The version that is written. Readers take this one and the one before it (there is none before 1).
inline constexpr int kRecordVersion = 1;
/// A record is an annotation and a journal line: it stays far below the 256 KiB that all annotations share.
inline constexpr std::size_t kMaxRecordText = 64 * 1024;

/// The record as canonical one-line JSON: fixed key order, no space, no line's end, printable ASCII. Equal
/// records give equal bytes.
///   errors  what validate(record) says, so that nothing is written that decode_record() refuses
[[nodiscard]] Result<std::string> encode_record(const Record& record);

/// Reads what encode_record() of this version or the one before wrote, and nothing else: unknown or repeated
/// keys, other spellings, illegal values and other versions are refused.
///   errors  kInvalidArgument (the text says what and where), kUnimplemented (another version)
///   cost    O(text); never throws
[[nodiscard]] Result<Record> decode_record(std::string_view text);

}  // namespace carve::codec
