#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/ranking.h"
#include "core/cluster/what_if.h"
#include "core/model/record.h"
#include "core/model/request.h"

namespace carve::codec {

/// What there is to say about one pod and the cards.
struct Explanation {
  std::string space;
  std::string name;
  std::string node;   // empty: none yet
  std::string state;  // for a person: "waits, not bound to a node"
  bool ended = false;
  std::string wrong;                // what is wrong with its request or its record; empty: nothing
  std::vector<PartRequest> asks;    // empty: for no card
  std::vector<RecordPart> holds;    // by its record
  std::uint64_t epoch = 0;          // of control, when it decided
  std::string policy;               // what ranks nodes and cards, and by whose word
  std::size_t nodes = 0;            // with cards
  std::vector<std::string> fits;    // nodes that would serve it now, were it on none; the policy's choice first
  std::vector<RankedNode> ranked;   // the first of them, with the terms of their scores
  std::vector<RefusedGroup> refused;  // the others
  bool final = false;               // all others never will, whoever goes
  SmallerAsk smaller;               // what would fit where nothing does
  std::string scheduler_says;       // its last event about the pod; empty: none
  std::string unread;               // what counts and the caller may not read, a sentence; empty: nothing
};

/// Keys are a promise, as in cluster_view.h.
[[nodiscard]] std::string to_json(const Explanation& explanation);

}  // namespace carve::codec
