#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model/record.h"

namespace carve::codec {

/// The annotation of a Pod that holds the decision about it.
inline constexpr std::string_view kRecordAnnotation = "carve.elasticgpu.io/record";
/// The newest version. A record is written in the oldest one that can say it. 2: `ceiling`.
inline constexpr int kRecordVersion = 2;
/// A record is an annotation and a journal line: it stays far below the 256 KiB that all annotations of an object
/// share.
inline constexpr std::size_t kMaxRecordText = 64 * 1024;

/// The record as canonical JSON on one line: fixed key order, no spaces, no line end, printable ASCII. Equal records
/// give equal bytes.
///   errors  those of validate(record), so that decode_record() accepts all that is written
[[nodiscard]] Result<std::string> encode_record(const Record& record);

/// Reads exactly what encode_record() of this version or an earlier one writes. Unknown or repeated keys, other
/// spellings, illegal values and other versions are refused.
///   errors  kInvalidArgument (with the field and the fault), kUnimplemented (another version)
///   cost    O(text); never throws
[[nodiscard]] Result<Record> decode_record(std::string_view text);

}  // namespace carve::codec
