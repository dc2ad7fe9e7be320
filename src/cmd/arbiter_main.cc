#include "cmd/arbiter_main.h"

namespace carve::cmd {
namespace {

/// Stands in until the arbiter's client is there.
class NoArbiter final : public Pages {
 public:
  Result<void> put(const PageOrder&) override { return away(); }
  Result<void> drop(const std::string&) override { return away(); }
  Result<std::vector<PageSlice>> list() override { return away(); }
  Result<void> set_overhead(const std::string&, std::uint32_t, Bytes) override { return away(); }

 private:
  static tl::unexpected<Error> away() { return fail(Code::kUnavailable, "this build has no arbiter"); }
};

}  // namespace

std::unique_ptr<Pages> make_pages(const HostOptions&) { return std::make_unique<NoArbiter>(); }

int run_arbiter(const HostOptions&) { return report({Code::kUnimplemented, "this build has no arbiter"}); }

}  // namespace carve::cmd
