// The processor time to find, in JSON of control's two hot paths, the pieces that control needs: by JsonPieces
// (codec/json_pieces.h), by Boost.JSON's document, and by simdjson's document and On-Demand interfaces, of which
// JsonPieces uses both. All run in turn in each round; the figure is the median of the rounds.
//
//   json_bench [--rounds N]
//
// The filter call has a Pod, of which the text is kept, and 5,000 node names, which are read. The watch event has a
// type, an object, of which the text is kept, and the object's resourceVersion. simdjson's document checks the whole
// text; On-Demand does not check the values that it skips (the last column says which).
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/control/objects.h"
#include "codec/json_pieces.h"

namespace carve::bench {
namespace {

namespace json = boost::json;
constexpr std::size_t kNodes = 5'000;
constexpr std::size_t kTogether = 20;  // readings per measurement

/// Prevents the compiler from removing a reading: every reader returns the number of bytes that it found.
struct Reader {
  const char* name;
  bool whole;  // text that is not JSON is rejected, also where no piece is needed
  std::function<std::size_t(const std::string&)> read;
};

std::size_t pieces_call(const std::string& text) {
  codec::JsonPieces pieces(text);
  std::vector<std::string_view> names;
  std::size_t found = 0;
  const bool read = pieces.object([&](std::string_view name, codec::JsonPieces::Value value) {
    if (name == "Pod") {
      const auto pod = pieces.text(value);
      if (pod) found += pod->size();
      return pod.has_value();
    }
    if (name != "NodeNames") return true;
    return pieces.array(value, [&](codec::JsonPieces::Value item) {
      const auto one = pieces.plain_text(item);
      if (one) names.push_back(*one);
      return one.has_value();
    });
  });
  if (!read) std::abort();
  for (const auto& name : names) found += name.size();
  return found;
}

std::size_t pieces_event(const std::string& text) {
  codec::JsonPieces pieces(text);
  std::string_view object;
  std::string_view metadata;
  std::string_view version;
  const bool read = pieces.object([&](std::string_view name, codec::JsonPieces::Value value) {
    if (name != "object") return true;
    return pieces.object(value, &object, [&](std::string_view field, codec::JsonPieces::Value member) {
      if (field != "metadata") return true;
      return pieces.object(member, &metadata, [&](std::string_view one, codec::JsonPieces::Value found) {
        if (one == "resourceVersion") version = pieces.plain_text(found).value_or("");
        return true;
      });
    });
  });
  if (!read) std::abort();
  return object.size() + version.size();
}

std::size_t document_call(const std::string& text) {
  json::monotonic_resource memory;
  const auto call = json::parse({text.data(), text.size()}, &memory);
  std::size_t found = 0;
  for (const auto& name : call.at("NodeNames").as_array()) found += name.as_string().size();
  return found + call.at("Pod").as_object().size();
}

std::size_t document_event(const std::string& text) {
  json::monotonic_resource memory;
  const auto event = json::parse({text.data(), text.size()}, &memory);
  return event.at("object").at("metadata").at("resourceVersion").as_string().size();
}

// The text has room for simdjson's padding already: the API client and the server would reserve it in their buffers.
simdjson::padded_string_view padded(const std::string& text) {
  return simdjson::padded_string_view(text.data(), text.size(), text.capacity());
}

std::size_t dom_call(const std::string& text) {
  static simdjson::dom::parser parser;
  const auto call = parser.parse(text.data(), text.size(), false);
  std::size_t found = 0;
  for (const auto name : call["NodeNames"].get_array()) found += name.get_string().value().size();
  return found + call["Pod"].get_object().size();
}

std::size_t dom_event(const std::string& text) {
  static simdjson::dom::parser parser;
  return parser.parse(text.data(), text.size(), false)["object"]["metadata"]["resourceVersion"]
      .get_string()
      .value()
      .size();
}

std::size_t demand_call(const std::string& text) {
  static simdjson::ondemand::parser parser;
  simdjson::ondemand::document call = parser.iterate(padded(text));
  std::size_t found = 0;
  for (auto member : call.get_object()) {
    const std::string_view name = member.unescaped_key();
    if (name == "Pod") {
      simdjson::ondemand::object pod = member.value().get_object();
      found += std::string_view(pod.raw_json()).size();
    } else if (name == "NodeNames") {
      for (auto one : member.value().get_array()) found += std::string_view(one.get_string()).size();
    }
  }
  return found;
}

std::size_t demand_event(const std::string& text) {
  static simdjson::ondemand::parser parser;
  simdjson::ondemand::document event = parser.iterate(padded(text));
  std::size_t found = 0;
  for (auto member : event.get_object()) {
    const std::string_view name = member.unescaped_key();
    if (name != "object") continue;
    simdjson::ondemand::object object = member.value().get_object();
    found += std::string_view(object["metadata"]["resourceVersion"].get_string()).size();
    object.reset();
    found += std::string_view(object.raw_json()).size();
  }
  return found;
}

double cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void compare(const char* what, std::string text, const std::vector<Reader>& readers, std::size_t rounds) {
  text.reserve(text.size() + 64);
  std::vector<std::vector<double>> spent(readers.size());
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < readers.size(); ++i) {
      const double begin = cpu_us();
      for (std::size_t n = 0; n < kTogether; ++n)
        if (readers[i].read(text) == 0) std::abort();
      spent[i].push_back((cpu_us() - begin) / kTogether);
    }
  std::printf("\n%s, %zu bytes, median of %zu rounds\n", what, text.size(), rounds);
  double first = 0;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    auto& all = spent[i];
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    const double median = all[all.size() / 2];
    if (i == 0) first = median;
    std::printf("  %-22s %9.2f us  %7.0f MB/s  %5.2f x  %s\n", readers[i].name, median,
                static_cast<double>(text.size()) / median, median / first,
                readers[i].whole ? "checks the whole text" : "does not check what it skips");
  }
}

int run(std::size_t rounds) {
  std::vector<std::string> names(kNodes);
  for (std::size_t i = 0; i < kNodes; ++i) names[i] = node_name(i);
  std::vector<Reader> call{{"JsonPieces", true, pieces_call}, {"Boost.JSON", true, document_call}};
  std::vector<Reader> watch{{"JsonPieces", true, pieces_event}, {"Boost.JSON", true, document_event}};
  call.push_back({"simdjson, document", true, dom_call});
  call.push_back({"simdjson, On-Demand", false, demand_call});
  watch.push_back({"simdjson, document", true, dom_event});
  watch.push_back({"simdjson, On-Demand", false, demand_event});
  compare("filter call", choose_call(7, names), call, rounds);
  compare("watch event", event("MODIFIED", pod_object({.number = 7, .node = node_name(3)})), watch, rounds);
  return 0;
}

}  // namespace
}  // namespace carve::bench

int main(int argc, char** argv) {
  std::size_t rounds = 300;
  if (argc == 3 && std::strcmp(argv[1], "--rounds") == 0) rounds = std::strtoul(argv[2], nullptr, 10);
  return carve::bench::run(rounds == 0 ? 1 : rounds);
}
