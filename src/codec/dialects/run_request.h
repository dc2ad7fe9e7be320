#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/quantity.h"
#include "core/model/request.h"

namespace carve::codec {

/// The arguments that a user wrote after `carve run` or `carve slice create`, unparsed; nullopt: not given. The agent
/// takes the same texts over its socket, so that only one place interprets them.
struct RunWords {
  std::optional<std::string> memory;    // 4Gi, 50%
  std::optional<std::string> cores;     // 30, 100, 200
  std::optional<std::string> cards;     // 2
  std::optional<std::string> core_limit;  // 60
  std::optional<std::string> share;     // fixed, burst, besteffort
  std::optional<std::string> priority;  // online, standard, offline
  std::optional<std::string> model;     // H200
  std::vector<std::string> card;        // UUIDs; only these cards
  bool exclusive = false;
  friend bool operator==(const RunWords&, const RunWords&) = default;
};

/// The three quantities of a request, each legal by itself; nullopt: not given.
struct Amounts {
  std::optional<MemoryAsk> memory;
  std::optional<CoresAsk> cores;
  std::optional<std::uint32_t> cards;
};

/// The request with these amounts. Memory alone: besteffort compute. Cores alone: that percentage of the memory as
/// well. Cards alone, or k·100 cores alone: whole cards. Cards with memory or cores: that number of equal slices. The
/// default class is burst.
///   errors  kInvalidArgument: amounts that contradict each other, or none
[[nodiscard]] Result<Request> request_from(const Amounts& amounts);

/// The same for the arguments of the command line.
///   errors  kInvalidArgument: all faults of the arguments, joined by "; "
[[nodiscard]] Result<Request> request_from(const RunWords& words);

}  // namespace carve::codec
