#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/units.h"

// The past of a node: what was promised and what was delivered, per card and per slice. Pure.
namespace carve {

/// What a line of the history is about: a card, or one slice's part of a card.
struct HistoryKey {
  std::string card;   // UUID
  std::string slice;  // the agent's name of it; empty: the card itself
  std::string name;   // of the slice: "namespace/pod/container", or the program of `carve run`; else empty
  [[nodiscard]] bool of_card() const { return slice.empty(); }
  friend auto operator<=>(const HistoryKey&, const HistoryKey&) = default;
};

/// The averages of one interval.
struct HistorySample {
  HistoryKey key;
  std::uint32_t seconds = 0;  // the part of the interval that was observed: a slice may begin or end in it
  Bytes granted;
  std::optional<Bytes> used;                 // nullopt: the driver did not report it
  double cores_granted = 0;                  // hundredths of a card
  std::optional<double> cores_delivered;     // the same unit
  std::optional<std::uint32_t> temperature;  // °C; of cards
  std::optional<std::uint32_t> power;        // W; of cards
  friend bool operator==(const HistorySample&, const HistorySample&) = default;
};

/// All samples of the interval that ended at this time.
struct HistoryFrame {
  std::int64_t unix_seconds = 0;
  std::vector<HistorySample> samples;
  friend bool operator==(const HistoryFrame&, const HistoryFrame&) = default;
};

/// The intervals that are kept, and for how long.
inline constexpr std::chrono::seconds kHistoryFine{10};
inline constexpr std::chrono::seconds kHistoryCoarse{300};
inline constexpr std::chrono::hours kHistoryFineKept{25};
inline constexpr std::chrono::hours kHistoryCoarseKept{31 * 24};

/// Averages of several frames, weighted by the time that each sample was observed.
class HistoryRollup {
 public:
  void add(const HistoryFrame& frame);
  [[nodiscard]] bool empty() const { return sums_.empty(); }
  /// The frame of all that was added; then begins again.
  [[nodiscard]] HistoryFrame take(std::int64_t unix_seconds);

 private:
  struct Sum {
    double seconds = 0;
    double granted = 0;
    double cores = 0;
    double used = 0, used_seconds = 0;
    double delivered = 0, delivered_seconds = 0;
    double temperature = 0, temperature_seconds = 0;
    double power = 0, power_seconds = 0;
  };
  std::map<HistoryKey, Sum> sums_;
};

/// What a reader wants to know.
struct HistoryQuery {
  /// The lines of the answer. kNamespaces: the sums over the slices of each namespace; the name is the key's `name`.
  enum class By : std::uint8_t { kCards, kSlices, kNamespaces } by = By::kCards;
  std::string card;   // only cards whose UUID begins with this; empty: all
  std::string slice;  // only this slice
  std::string name;   // only slices with this name, or of this pod or namespace: "namespace/pod/container"
  std::chrono::seconds since{3600};
  std::uint32_t points = 600;  // the largest number of intervals in the answer
};

/// The words of HistoryQuery::By, for messages and queries.
inline constexpr const char* kHistoryByWords = "cards, slices, namespaces";
[[nodiscard]] std::string_view to_string(HistoryQuery::By by);
[[nodiscard]] std::optional<HistoryQuery::By> history_by_from(std::string_view word);

/// The longest time that a query can ask for, and the largest number of points.
inline constexpr std::chrono::hours kHistoryLongest{31 * 24};
inline constexpr std::uint32_t kHistoryMostPoints = 10'000;

/// True: the query is answered from the frames of kHistoryFine, else from those of kHistoryCoarse.
[[nodiscard]] bool wants_fine(const HistoryQuery& query);

/// One line of the answer: a value per interval; an empty interval has no value.
struct HistoryLine {
  HistoryKey key;
  std::vector<std::optional<HistorySample>> values;  // their keys are empty
};

struct HistoryAnswer {
  std::int64_t first_unix_seconds = 0;  // the end of the first interval
  std::uint32_t step_seconds = 0;
  std::size_t intervals = 0;
  std::vector<HistoryLine> lines;  // sorted by key
};

/// What was promised and delivered over a time.
struct UsageHours {
  double card_hours_promised = 0;  // of compute: a whole card for an hour is 1
  double card_hours_delivered = 0;
  double gib_hours_held = 0;
  double gib_hours_used = 0;
  UsageHours& operator+=(const UsageHours& more);
};
[[nodiscard]] UsageHours hours_of(const HistoryLine& line);

/// Makes the answer from frames in the order of their time, without keeping them. Frames in one interval are averaged;
/// those outside the query's time are ignored.
class HistoryReader {
 public:
  ///   in   now: Unix time in seconds
  HistoryReader(const HistoryQuery& query, std::int64_t now);
  void add(const HistoryFrame& frame);
  [[nodiscard]] HistoryAnswer take();

 private:
  void finish_interval();

  const HistoryQuery query_;
  HistoryAnswer answer_;
  std::map<HistoryKey, HistoryLine> lines_;
  HistoryRollup rollup_;
  std::size_t at_ = 0;  // the interval of the frames in rollup_
};

/// The namespace in a slice's name; empty: it is not of a cluster.
[[nodiscard]] std::string namespace_in(const std::string& name);

}  // namespace carve
