#include "codec/testing/variants.h"

#include <boost/json.hpp>

#include <cctype>
#include <vector>

namespace carve::codec {
namespace {

namespace json = boost::json;
using Use = std::function<void(const std::string&)>;

bool separates(char letter) { return std::string_view(" \t\n=,:;/|").find(letter) != std::string_view::npos; }

std::string other_case(std::string text) {
  for (char& letter : text) {
    letter = static_cast<char>(std::islower(letter) != 0 ? std::toupper(letter) : std::tolower(letter));
  }
  return text;
}

/// Texts that resemble `text`.
std::vector<std::string> misspellings(const std::string& text) {
  std::vector<std::string> all = {"", "-1", "1.5", "A-b", "\xc3\xa9\n"};
  all.push_back(text + "x");
  all.push_back(" " + text + " ");
  for (const std::size_t length : {64U, 300U}) all.push_back(std::string(length, 'x'));
  if (text.empty()) return all;
  all.push_back(text.substr(1));
  all.push_back(text.substr(0, text.size() - 1));
  all.push_back(other_case(text));
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!separates(text[i])) continue;
    all.push_back(text.substr(0, i) + text.substr(i + 1));
    all.push_back(text.substr(0, i) + text[i] + text.substr(i));
    all.push_back(text.substr(0, i));
    all.push_back(text.substr(i + 1));
  }
  return all;
}

/// Numbers near `number`, and near limits of types.
std::vector<std::int64_t> numbers_near(std::int64_t number) {
  return {number - 1, number + 1, number * 2, -number, 1, 100, 101, std::int64_t{1} << 32U};
}

/// Calls `use` for the whole document with `here` changed.
class Changes {
 public:
  Changes(const json::value& root, const Use& use) : root_(root), use_(use) {}

  void all_of(json::value& here) {
    const json::value saved = here;
    others(here, saved);
    if (json::object* object = here.if_object()) members(*object);
    if (json::array* array = here.if_array()) items(*array);
    here = saved;
  }

 private:
  void use() { use_(json::serialize(root_)); }

  void put(json::value& here, json::value other) {
    here = std::move(other);
    use();
  }

  void others(json::value& here, const json::value& saved) {
    for (const json::value& other : {json::value(nullptr), json::value(true), json::value(0), json::value("x"),
                                     json::value(json::array()), json::value(json::object())}) {
      put(here, other);
    }
    put(here, json::array({saved, saved}));
    if (const auto* text = saved.if_string()) {
      for (const std::string& other : misspellings({text->data(), text->size()})) put(here, json::string(other));
    }
    if (const auto* number = saved.if_int64()) {
      for (const std::int64_t other : numbers_near(*number)) put(here, other);
      put(here, json::string(std::to_string(*number)));
    }
    here = saved;
  }

  void members(json::object& object) {
    std::vector<std::string> keys;
    for (const auto& member : object) keys.emplace_back(member.key().data(), member.key().size());
    for (const std::string& key : keys) {
      const json::object saved = object;
      object.erase(key);
      use();
      for (const std::string& other : {key + "x", "x" + key.substr(key.empty() ? 0 : 1), other_case(key)}) {
        object[other] = saved.at(key);
        use();
        object.erase(other);
      }
      object = saved;
      all_of(object.at(key));
    }
    object["other"] = 7;
    use();
    object.erase("other");
  }

  void items(json::array& array) {
    for (std::size_t i = 0; i < array.size(); ++i) {
      const json::array saved = array;
      array.erase(array.begin() + static_cast<std::ptrdiff_t>(i));
      use();
      array.insert(array.begin(), saved[i]);
      use();
      array = saved;
      array.push_back(saved[i]);
      use();
      array = saved;
      all_of(array[i]);
    }
  }

  const json::value& root_;
  const Use& use_;
};

}  // namespace

void each_variant_of_json(std::string_view document, const Use& use) {
  json::value root = json::parse(json::string_view(document.data(), document.size()));
  use(json::serialize(root));
  Changes(root, use).all_of(root);
  for (std::size_t length = 0; length < document.size(); length += 1 + document.size() / 20) {
    use(std::string(document.substr(0, length)));
  }
}

void each_variant_of_text(std::string_view text, const Use& use) {
  use(std::string(text));
  const auto around = [&](std::size_t from, std::size_t to, const std::string& middle) {
    use(std::string(text.substr(0, from)) + middle + std::string(text.substr(to)));
  };
  std::size_t line = 0;
  std::size_t word = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const bool ends_line = at == text.size() || text[at] == '\n';
    if (ends_line) {
      const std::string whole(text.substr(line, at - line));
      around(line, std::min(at + 1, text.size()), "");
      around(line, at, whole + "\n" + whole);
      around(line, at, "  " + whole + "  ");
      around(line, at, "# " + whole);
      line = at + 1;
    }
    if (at != text.size() && !separates(text[at])) continue;
    if (at > word) {
      const std::string one(text.substr(word, at - word));
      for (const std::string& other : misspellings(one)) around(word, at, other);
      if (one.find_first_not_of("0123456789") == std::string::npos && one.size() < 16) {
        for (const std::int64_t other : numbers_near(std::stoll(one))) around(word, at, std::to_string(other));
      }
      use(std::string(text.substr(0, at)));
    }
    if (at != text.size()) {
      for (const std::string_view other : {"", ":", ",", "\n"}) {
        around(at, at + 1, std::string(other));
      }
    }
    word = at + 1;
  }
}

}  // namespace carve::codec
