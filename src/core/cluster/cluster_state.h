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

/// All nodes, by name. A changed node becomes another object. The interface for reading is that of std::map. Copies
/// share what is equal: the names while no node is added or removed, and the nodes in pieces of kPiece. Shared parts
/// never change, so other threads may read a copy while this one is written.
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
  /// Entries that are nullptr are left out.
  ClusterState(const Nodes& nodes) { change(nodes); }                                     // NOLINT: converts like a map
  ClusterState(std::initializer_list<Nodes::value_type> nodes) { change(Nodes(nodes)); }  // NOLINT

  /// Sets these nodes; nullptr removes a node.
  ///   cost    kPiece pointers per change and one per piece; all names where a node is added or removed
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
  /// The name must exist.
  [[nodiscard]] const Node& at(std::string_view name) const { return node(*number_of(name)); }

  /// Nodes are numbered from 0, in the order of their names.
  [[nodiscard]] std::optional<Number> number_of(std::string_view name) const;
  [[nodiscard]] const std::string& name(Number number) const { return names_->sorted[number]; }
  [[nodiscard]] const Node& node(Number number) const { return (*pieces_[number / kPiece])[number % kPiece]; }
  /// True: every name has the same number in both, because one is a copy of the other apart from its nodes. May be
  /// false for equal names.
  [[nodiscard]] bool same_names(const ClusterState& other) const { return names_ == other.names_; }
  /// For two states with the same names: true when every node in the piece of that number is the same object.
  [[nodiscard]] bool same_piece(const ClusterState& other, Number number) const {
    return pieces_[number / kPiece] == other.pieces_[number / kPiece];
  }

 private:
  /// Looked up for every node of every call of kube-scheduler.
  struct Names {
    explicit Names(std::vector<std::string> names);
    [[nodiscard]] std::optional<Number> find(std::string_view name) const;
    struct Slot {
      std::uint32_t mark = 0;  // of the name's hash
      Number after = 0;        // the number + 1; 0: empty
    };
    std::vector<std::string> sorted;
    std::vector<Slot> slots;  // the size is a power of two; at most half of them are used
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
