#include "core/policy/choose.h"

#include <algorithm>

namespace carve {
namespace {

/// The quality of a set; only sets of the same size can be compared.
struct Worth {
  Connection connection;
  std::int64_t score = 0;

  [[nodiscard]] bool better_than(const Worth& other, bool links_first) const {
    if (links_first) {
      return connection != other.connection ? connection > other.connection : score > other.score;
    }
    return score != other.score ? score > other.score : connection > other.connection;
  }
};

/// Searches the sets of candidates. Keeps the links of all pairs by index, so that the inner loop compares no strings.
class CardSearch {
 public:
  CardSearch(const std::vector<Candidate>& candidates, std::size_t count, const LinkMatrix& links,
         bool links_first)
      : candidates_(candidates), count_(count), links_first_(links_first) {
    const std::size_t n = candidates.size();
    pair_.resize(n * n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        pair_[i * n + j] = pair_[j * n + i] =
            links.between(*candidates[i].card, *candidates[j].card);
      }
    }
  }

  std::vector<std::size_t> exact() {
    extend(0, {});
    return best_;
  }

  std::vector<std::size_t> greedy() {
    for (std::size_t first = 0; first < candidates_.size(); ++first) {
      chosen_ = {first};
      Worth worth = with({}, first, 0);
      while (chosen_.size() < count_) {
        std::size_t next = candidates_.size();
        Worth next_worth;
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
          if (std::find(chosen_.begin(), chosen_.end(), i) != chosen_.end()) continue;
          const Worth grown = with(worth, i, chosen_.size());
          if (next == candidates_.size() || grown.better_than(next_worth, links_first_)) {
            next = i;
            next_worth = grown;
          }
        }
        chosen_.push_back(next);
        worth = next_worth;
      }
      keep_if_better(worth);
    }
    std::sort(best_.begin(), best_.end());
    return best_;
  }

 private:
  /// The worth of the first `size` chosen candidates plus candidate `i`.
  [[nodiscard]] Worth with(Worth worth, std::size_t i, std::size_t size) const {
    for (std::size_t at = 0; at < size; ++at) {
      const Link link = pair_[chosen_[at] * candidates_.size() + i];
      worth.connection.worst = std::min(worth.connection.worst, link.level);
      worth.connection.weight += weight_of(link);
    }
    worth.score += candidates_[i].score;
    return worth;
  }

  void keep_if_better(const Worth& worth) {
    if (!best_.empty() && !worth.better_than(best_worth_, links_first_)) return;
    best_ = chosen_;
    best_worth_ = worth;
  }

  // Sets are visited in rising order of UUIDs, so the first of equal sets has the lower ones. The recursion depth is
  // `count`.
  void extend(std::size_t from, const Worth& worth) {
    if (chosen_.size() == count_) return keep_if_better(worth);
    if (links_first_ && !best_.empty() && worth.connection.worst < best_worth_.connection.worst) {
      return;  // more cards cannot improve the worst pair
    }
    const std::size_t missing = count_ - chosen_.size();
    for (std::size_t i = from; i + missing <= candidates_.size(); ++i) {
      const Worth grown = with(worth, i, chosen_.size());
      chosen_.push_back(i);
      extend(i + 1, grown);
      chosen_.pop_back();
    }
  }

  const std::vector<Candidate>& candidates_;
  std::size_t count_;
  bool links_first_;
  std::vector<Link> pair_;
  std::vector<std::size_t> chosen_;
  std::vector<std::size_t> best_;
  Worth best_worth_;
};

constexpr std::size_t kExactCards = 16;

}  // namespace

std::vector<std::size_t> choose_set(const std::vector<Candidate>& candidates, std::size_t count,
                                    const LinkMatrix& links, bool links_first) {
  if (count == 1) {
    const auto best =
        std::max_element(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
    return {static_cast<std::size_t>(best - candidates.begin())};
  }
  CardSearch search(candidates, count, links, links_first);
  return candidates.size() <= kExactCards ? search.exact() : search.greedy();
}

}  // namespace carve
