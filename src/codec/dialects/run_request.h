#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/request.h"

namespace carve::codec {

/// What a person wrote after `carve run` or `carve slice create`, word by word; nullopt: not written. The
/// agent takes the same words over its socket, so that one place decides what they mean.
struct RunWords {
  std::optional<std::string> memory;    // 4Gi, 50%
  std::optional<std::string> cores;     // 30, 100, 200
  std::optional<std::string> cards;     // 2
  std::optional<std::string> share;     // fixed, burst, besteffort
  std::optional<std::string> priority;  // online, standard, offline
  std::optional<std::string> model;     // H200
  std::vector<std::string> card;        // UUIDs; only these
  bool exclusive = false;
  friend bool operator==(const RunWords&, const RunWords&) = default;
};

/// The request that the words stand for. Memory alone is besteffort compute; cores alone take that per cent
/// of the memory; cards alone, or k·100 cores alone, are whole cards; cards beside memory or cores are that
/// many equal slices. The default class is burst.
///   errors  kInvalidArgument: everything that is wrong with the words, joined by "; "
///   source  design.md 7 (native dialect)
[[nodiscard]] Result<Request> request_from(const RunWords& words);

}  // namespace carve::codec
