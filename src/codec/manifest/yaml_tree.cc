#include "codec/manifest/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <limits>
#include <set>
#include <utility>

#include "codec/admission/answer.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMostValues = 100'000;
constexpr std::string_view kComment = " //";

constexpr std::array<std::string_view, 5> kNulls = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 9> kTrues = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"};
constexpr std::array<std::string_view, 9> kFalses = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& words, std::string_view text) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  return text;
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A whole number in YAML 1.1, as kubectl reads it; null: it is none, or it does not fit into 64 bits.
json::value whole_number(std::string_view text) {
  const bool minus = text.starts_with('-');
  std::string_view digits = without_sign(text);
  int base = 10;
  if (digits.starts_with("0x")) {
    base = 16;
    digits.remove_prefix(2);
  } else if (digits.starts_with("0o")) {
    base = 8;
    digits.remove_prefix(2);
  } else if (digits.size() > 1 && digits.front() == '0') {
    base = 8;
    digits.remove_prefix(1);
  }
  if (digits.empty() || digits.front() == '-' || digits.front() == '+') return nullptr;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return nullptr;
  if (!minus && number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return number;
  if (minus && number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return nullptr;
  const auto whole = static_cast<std::int64_t>(number);
  return minus ? -whole : whole;
}

/// A decimal fraction; null: it is none.
json::value fraction(std::string_view text) {
  const std::string_view digits = without_sign(text);
  const auto exponent = digits.find_first_of("eE");
  const std::string_view mantissa = digits.substr(0, exponent);
  const auto dot = mantissa.find('.');
  const bool right = dot == std::string_view::npos
                         ? is_digits(mantissa) && exponent != std::string_view::npos
                         : mantissa.size() > 1 && (dot == 0 || is_digits(mantissa.substr(0, dot))) &&
                               (dot + 1 == mantissa.size() || is_digits(mantissa.substr(dot + 1)));
  if (!right) return nullptr;
  if (exponent != std::string_view::npos && !is_digits(without_sign(digits.substr(exponent + 1)))) return nullptr;
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return nullptr;
  return number;
}

json::string text_value(std::string_view text) { return json::string(text.data(), text.size()); }

/// What an unquoted word is.
json::value typed(std::string_view text) {
  if (is_one_of(kNulls, text)) return nullptr;
  if (is_one_of(kTrues, text)) return true;
  if (is_one_of(kFalses, text)) return false;
  if (auto number = whole_number(text); !number.is_null()) return number;
  if (auto number = fraction(text); !number.is_null()) return number;
  return text_value(text);
}

/// Converts one document.
class Conversion {
 public:
  explicit Conversion(YamlTree* tree) : tree_(*tree) {}

  Result<json::value> of(const YAML::Node& node, const std::string& pointer, std::size_t depth) {
    if (depth > kDeepest) return fail(Code::kInvalidArgument, fmt::format("nested deeper than {}", kDeepest));
    if (++values_ > kMostValues)
      return fail(Code::kInvalidArgument, fmt::format("more than {} values, aliases counted", kMostValues));
    const auto mark = node.Mark();
    if (!mark.is_null()) tree_.lines[pointer] = static_cast<std::size_t>(mark.line) + 1;
    if (node.IsMap()) return of_map(node, pointer, depth);
    if (node.IsSequence()) {
      json::array all;
      for (const auto& item : node) {
        CARVE_TRY(auto value, of(item, fmt::format("{}/{}", pointer, all.size()), depth + 1));
        all.push_back(std::move(value));
      }
      return all;
    }
    return node.IsScalar() ? of_scalar(node, pointer) : json::value(nullptr);
  }

  void with_comments() { comments_ = true; }

 private:
  json::value of_scalar(const YAML::Node& node, const std::string& pointer) {
    std::string text = node.Scalar();
    if (node.Tag() != "?") return text_value(text);  // quoted, or with a tag
    const bool may = comments_ || pointer.find("/resources/") != std::string::npos ||
                     pointer.find("/metadata/") != std::string::npos;
    if (const auto at = text.find(kComment); may && at != std::string::npos) {
      text.erase(at);
      text.erase(text.find_last_not_of(' ') + 1);
      tree_.commented.push_back(pointer);
    }
    auto value = typed(text);
    if (!value.is_string()) tree_.plain[pointer] = text;
    return value;
  }

  Result<json::value> of_map(const YAML::Node& node, const std::string& pointer, std::size_t depth) {
    json::object all;
    std::vector<YAML::Node> merged;
    for (const auto& member : node) {
      if (!member.first.IsScalar()) return fail(Code::kInvalidArgument, "a key that is not text");
      const std::string key = member.first.Scalar();
      if (key == "<<" && (member.second.IsMap() || member.second.IsSequence())) {
        merged.push_back(member.second);
        continue;
      }
      const std::string inner = pointer + "/" + pointer_word(key);
      CARVE_TRY(auto value, of(member.second, inner, depth + 1));
      if (!member.first.Mark().is_null()) tree_.lines[inner] = static_cast<std::size_t>(member.first.Mark().line) + 1;
      if (all.contains(key)) tree_.twice.push_back(inner);
      all.insert_or_assign(key, std::move(value));
    }
    for (const auto& one : merged) CARVE_TRY_VOID(merge(one, pointer, depth, &all));
    return all;
  }

  /// Members of `<<` that the map does not have itself.
  Result<void> merge(const YAML::Node& from, const std::string& pointer, std::size_t depth, json::object* all) {
    CARVE_TRY(const auto value, of(from, pointer, depth + 1));
    const auto add = [all](const json::value& one) {
      if (const auto* object = one.if_object())
        for (const auto& member : *object)
          if (!all->contains(member.key())) all->emplace(member.key(), member.value());
    };
    if (const auto* list = value.if_array())
      for (const auto& one : *list) add(one);
    add(value);
    return {};
  }

  YamlTree& tree_;
  std::size_t values_ = 0;
  bool comments_ = false;
};

bool is_plain(std::string_view text) {
  constexpr std::string_view kInner = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  if (text.empty() || text.find_first_not_of(kInner) != std::string_view::npos) return false;
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/";
  if (kFirst.find(text.front()) == std::string_view::npos) return false;
  if (text == "y" || text == "Y" || text == "n" || text == "N") return false;
  return typed(text).is_string();
}

void emit_text(YAML::Emitter* out, std::string_view text) {
  if (!is_plain(text)) *out << YAML::DoubleQuoted;
  *out << std::string(text);
}

void emit(YAML::Emitter* out, const json::value& value) {
  if (const auto* object = value.if_object()) {
    *out << (object->empty() ? YAML::Flow : YAML::Block) << YAML::BeginMap;
    for (const auto& member : *object) {
      *out << YAML::Key;
      emit_text(out, std::string(member.key()));
      *out << YAML::Value;
      emit(out, member.value());
    }
    *out << YAML::EndMap;
  } else if (const auto* array = value.if_array()) {
    *out << (array->empty() ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
    for (const auto& item : *array) emit(out, item);
    *out << YAML::EndSeq;
  } else if (const auto* text = value.if_string()) {
    emit_text(out, std::string_view(text->data(), text->size()));
  } else if (const auto* number = value.if_double()) {
    const auto digits = fmt::format("{}", *number);  // json::serialize() writes 5E-1 for 0.5
    *out << (is_digits(without_sign(digits)) ? digits + ".0" : digits);
  } else if (value.is_null()) {
    *out << YAML::Null;
  } else {
    *out << json::serialize(value);
  }
}

}  // namespace

std::size_t YamlTree::line(std::string pointer) const {
  while (true) {
    if (const auto found = lines.find(pointer); found != lines.end()) return found->second;
    const auto slash = pointer.rfind('/');
    if (slash == std::string::npos) return 1;
    pointer.erase(slash);
  }
}

Result<YamlTree> parse_yaml(std::string_view text) {
  YamlTree tree;
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    Conversion conversion(&tree);
    if (root.IsMap() && root["apiVersion"] && root["apiVersion"].IsScalar() &&
        root["apiVersion"].Scalar().starts_with("elasticgpu.io/"))
      conversion.with_comments();
    CARVE_TRY(tree.value, conversion.of(root, "", 0));
  } catch (const YAML::Exception& error) {
    const auto line = error.mark.is_null() ? 0 : error.mark.line;
    return fail(Code::kInvalidArgument, fmt::format("line {}: not YAML: {}", line + 1, error.msg));
  } catch (const std::exception& error) {
    return fail(Code::kInvalidArgument, fmt::format("line 1: not YAML: {}", error.what()));
  }
  return tree;
}

std::string yaml_text(const json::value& value) {
  YAML::Emitter out;
  emit(&out, value);
  return std::string(out.c_str()) + "\n";
}

}  // namespace carve::codec
