#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/dialects/dialect.h"

// Manifests that were written for other systems, or for a past version of Kubernetes.
namespace carve::codec {

/// Carve's own ways to request a part of a card.
enum class Spelling : std::uint8_t { kNative, kClaim, kDra };
/// "native, claim or dra".
[[nodiscard]] std::optional<Spelling> spelling_from(std::string_view word);
inline constexpr std::string_view kSpellingWords = "native, claim or dra";

/// One remark on a manifest.
struct Remark {
  enum class Kind : std::uint8_t {
    kWrong,     // it will be refused, or mean something else than was meant; only its author can repair it
    kRepaired,  // what was wrong, and what the new text has instead
    kReads,     // what Carve gives to a container or a claim
  };
  Kind kind = Kind::kWrong;
  std::size_t line = 1;  // from 1
  std::string object;    // "Deployment web"; empty: the file
  std::string what;
  friend bool operator==(const Remark&, const Remark&) = default;
};

struct ManifestRules {
  DialectSettings dialects;
  std::optional<Spelling> to = {};  // rewrite the requests of pods
};

/// A manifest that was looked at.
struct ReadManifest {
  std::vector<Remark> remarks;  // sorted by line
  /// The text with everything repaired that can be. Documents without a repaired fault are as they were, byte for byte.
  std::string text;
};

/// Looks at the documents of one file: YAML documents separated by `---`, or JSON. Never fails: text that cannot be
/// parsed is a remark. Objects without pods pass.
///   cost    O(text); a document with aliases counts expanded, and at most 100,000 values of it are read
[[nodiscard]] ReadManifest read_manifest(std::string_view text, const ManifestRules& rules);

}  // namespace carve::codec
