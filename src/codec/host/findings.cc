#include "codec/host/findings.h"

#include <boost/json.hpp>

namespace carve::codec {
namespace {

const char* word(Severity severity) {
  return severity == Severity::kError     ? "error"
         : severity == Severity::kWarning ? "warning"
                                          : "note";
}

}  // namespace

std::string to_json(const std::vector<Finding>& findings) {
  boost::json::array out;
  for (const Finding& finding : findings) {
    out.push_back(boost::json::object{{"id", finding.id},
                                      {"severity", word(finding.severity)},
                                      {"what", finding.what},
                                      {"cause", finding.cause},
                                      {"fix", finding.fix}});
  }
  return boost::json::serialize(out);
}

}  // namespace carve::codec
