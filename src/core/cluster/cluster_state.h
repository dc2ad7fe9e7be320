#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace carve {

struct NodeState;

/// All machines, by name; a node that changes becomes another object. Read as a std::map is. Copies share all that is
/// alike: the names as long as none comes or goes, and the nodes in pieces of kPiece. What is shared never changes, so
/// a copy may be read by others while this one is written.
class ClusterState {
 public:
  using Node = std::shared_ptr<const NodeState>;
  using Nodes = std::map<std::string, Node, std::less<>>;
  using Number = std::uint32_t;
  static constexpr std::size_t kPiece = 32;

  struct Entry {
    const std::string& first;  // the name
    const Node& second;
  };
  class const_iterator;

  ClusterState() = default;
  /// Without those that are nullptr.
  ClusterState(const Nodes& nodes) { change(nodes); }                                     // NOLINT: as a map is made
  ClusterState(std::initializer_list<Nodes::value_type> nodes) { change(Nodes(nodes)); }  // NOLINT

  /// These are so from now on; nullptr: gone.
  ///   cost    kPiece pointers per change and one per piece; where a name comes or goes, all names
  void change(const Nodes& changes);
  void put(const std::string& name, Node node) { change({{name, std::move(node)}}); }
  void erase(const std::string& name) { change({{name, nullptr}}); }

  [[nodiscard]] std::size_t size() const { return names_ ? names_->sorted.size() : 0; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const_iterator begin() const;
  [[nodiscard]] const_iterator end() const;
  ///   cost    a hash of the name
  [[nodiscard]] const_iterator find(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const { return number_of(name).has_value(); }
  /// Of one that is there.
  [[nodiscard]] const Node& at(std::string_view name) const { return node(*number_of(name)); }

  /// Nodes are numbered from 0, in the order of their names.
  [[nodiscard]] std::optional<Number> number_of(std::string_view name) const;
  [[nodiscard]] const std::string& name(Number number) const { return names_->sorted[number]; }
  [[nodiscard]] const Node& node(Number number) const { return (*pieces_[number / kPiece])[number % kPiece]; }
  /// Each name has the same number there: one is a copy of the other, but for its nodes. May say no to equal names.
  [[nodiscard]] bool same_names(const ClusterState& other) const { return names_ == other.names_; }
  /// For both with the same names: none of the nodes of that number's piece is another object.
  [[nodiscard]] bool same_piece(const ClusterState& other, Number number) const {
    return pieces_[number / kPiece] == other.pieces_[number / kPiece];
  }

 private:
  /// Asked for every node of every call of kube-scheduler.
  struct Names {
    explicit Names(std::vector<std::string> names);
    [[nodiscard]] std::optional<Number> find(std::string_view name) const;
    struct Slot {
      std::uint32_t mark = 0;  // of the name's hash
      Number after = 0;        // the number + 1; 0: empty
    };
    std::vector<std::string> sorted;
    std::vector<Slot> slots;  // a power of two of them, at most half full
  };
  using Piece = std::array<Node, kPiece>;

  void rebuild(const Nodes& changes);

  std::shared_ptr<const Names> names_;
  std::vector<std::shared_ptr<const Piece>> pieces_;
};

class ClusterState::const_iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Entry;
  using difference_type = std::ptrdiff_t;
  using reference = Entry;
  struct pointer {
    Entry entry;
    const Entry* operator->() const { return &entry; }
  };

  const_iterator() = default;
  const_iterator(const ClusterState* state, std::size_t number) : state_(state), number_(number) {}
  reference operator*() const {
    const auto number = static_cast<Number>(number_);
    return {state_->name(number), state_->node(number)};
  }
  pointer operator->() const { return {**this}; }
  const_iterator& operator++() { return ++number_, *this; }
  const_iterator operator++(int) { return {state_, number_++}; }
  friend bool operator==(const const_iterator& a, const const_iterator& b) { return a.number_ == b.number_; }

 private:
  const ClusterState* state_ = nullptr;
  std::size_t number_ = 0;
};

inline ClusterState::const_iterator ClusterState::begin() const { return {this, 0}; }
inline ClusterState::const_iterator ClusterState::end() const { return {this, size()}; }
inline ClusterState::const_iterator ClusterState::find(std::string_view name) const {
  const auto number = number_of(name);
  return {this, number ? *number : size()};
}

}  // namespace carve
