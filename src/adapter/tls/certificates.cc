#include "adapter/tls/certificates.h"

#include <iterator>
#include <utility>

#include "base/thread.h"

namespace carve::tls {
namespace {

// The interval of the check for due renewals. A certificate is renewed a month before its end.
constexpr std::chrono::minutes kEvery{10};
// The interval while a watch may miss changes. Webhook configurations may be installed, or applied again without an
// authority, while control runs; until the next check the API server refuses pods with cards.
constexpr std::chrono::seconds kUnwatched{3};
constexpr std::chrono::seconds kDeaf{60};  // after an error of a watch; a lasting error is reported again sooner
constexpr std::chrono::seconds kAgain{2};
constexpr const char* kWebhooks = "/apis/admissionregistration.k8s.io/v1/";
constexpr int kMostRounds = 5;  // of two replicas that write concurrently, one succeeds in the first round

std::vector<std::string> dns_names(const CertificateNames& names) {
  const auto full = names.service + "." + names.namespace_name;
  return {names.service, full, full + ".svc", full + ".svc.cluster.local", "localhost"};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

/// Reads the Secret, lets `change` correct it and writes the changes. Retries when another replica wrote first.
Result<Secret> Certificates::settle(const std::string& name, const Change& change) {
  const auto all = "/api/v1/namespaces/" + names_.namespace_name + "/secrets";
  Error last{Code::kAborted, "other writers changed it in each of 5 rounds"};
  for (int round = 0; round < kMostRounds; ++round) {
    Secret secret;
    const auto existing = api_.get(all + "/" + name);
    if (existing) {
      CARVE_TRY(secret, parse_secret(*existing));
    } else if (existing.error().code != Code::kNotFound) {
      return fail_in("Secret " + name, existing.error());
    }
    std::vector<std::string> changed;
    if (auto done = change(secret, &changed); !done) return fail_in("Secret " + name, done.error());
    if (changed.empty()) return secret;
    const auto body = secret_json(secret, names_.namespace_name, name, existing ? std::string_view(*existing) : "");
    const auto written = existing ? api_.replace(all + "/" + name, body) : api_.create(all, body);
    if (written) {
      log_.info("certificates renewed", {{"secret", name}, {"what", joined(changed)}});
      return secret;
    }
    last = written.error();
    // Another replica wrote first, or the answer was lost: read the Secret again.
    const bool look_again = last.code == Code::kAlreadyExists || last.code == Code::kAborted ||
                            last.code == Code::kDeadlineExceeded || last.code == Code::kNotFound;
    if (!look_again) break;
  }
  return fail_in("Secret " + name, last);
}

/// Retries when another writer was first: the API server answers 422 if the patch tests an outdated resourceVersion.
Result<void> Certificates::update_webhooks(const std::string& kind, const std::string& authorities) {
  const auto path = kWebhooks + kind + "/" + names_.webhooks;
  Error last;
  for (int round = 0; round < kMostRounds; ++round) {
    const auto existing = api_.get(path);
    if (!existing && existing.error().code == Code::kNotFound) return {};  // not installed: nothing to do
    if (!existing) return fail_in(kind + " " + names_.webhooks, existing.error());
    CARVE_TRY(const auto patch, webhook_patch(*existing, names_.namespace_name, names_.service, authorities));
    if (!patch) return {};
    const auto done = api_.patch(path, KubePatch::kJson, *patch);
    if (done) {
      log_.info("authority written to the webhook configuration", {{"kind", kind}, {"name", names_.webhooks}});
      return {};
    }
    last = done.error();
    if (last.code != Code::kInvalidArgument && last.code != Code::kAborted) break;
  }
  return fail_in(kind + " " + names_.webhooks, last);
}

Result<void> Certificates::step(const std::function<void(const Serving&)>& changed) {
  const auto now = clock_.wall_now();
  const auto renew_own = [&](Secret& secret, std::vector<std::string>* what) -> Result<void> {
    auto kept = kept_in(secret);
    CARVE_TRY_VOID(renew(kept, {names_.service, dns_names(names_)}, lives_, now, what));
    keep(kept, &secret);
    return {};
  };
  CARVE_TRY(const auto own, settle(names_.secret, renew_own));
  const auto kept = kept_in(own);
  const auto authorities = bundle(kept);
  CARVE_TRY(const auto facts, facts_of(kept.serving.certificate));
  Serving serving{kept.serving, authorities, facts.life};
  bool other = false;
  {
    const MutexLock lock(mutex_);
    other = serving.pair != serving_.pair || serving.authorities != serving_.authorities;
    serving_ = serving;
  }
  // The webhooks first: the API server must know the authority before the server uses a certificate of it. At the first
  // time, and after a loss, no server runs that could wait.
  auto updated = update_webhooks("mutatingwebhookconfigurations", authorities);
  if (updated) updated = update_webhooks("validatingwebhookconfigurations", authorities);
  if (other) changed(serving);
  const auto renew_clients = [&](Secret& secret, std::vector<std::string>* what) -> Result<void> {
    auto pair = pair_in(secret);
    CARVE_TRY_VOID(renew_client(pair, kept, {names_.client, {}}, lives_, now, what));
    if (const auto found = secret.data.find("ca.crt"); found == secret.data.end() || found->second != authorities)
      what->emplace_back("authorities");
    secret.data["ca.crt"] = authorities;
    secret.data["tls.crt"] = pair.certificate;
    secret.data["tls.key"] = pair.key;
    return {};
  };
  CARVE_TRY(const auto client, settle(names_.client_secret, renew_clients));
  {
    const MutexLock lock(mutex_);
    client_ = {pair_in(client), authorities};
  }
  return updated;
}

/// Watches one object and wakes the loop at every change.
void Certificates::follow(const std::string& collection, const std::string& name, const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [this](const std::vector<std::string>&) { wake(); };
  sink.change = [this](const KubeChange&) { wake(); };
  sink.trouble = [this](const Error&) {
    {
      const MutexLock lock(mutex_);
      watched_again_ = clock_.now() + kDeaf;
    }
    wake();
  };
  api_.watch(collection, {{"fieldSelector", "metadata.name=" + name}}, sink, stop);
}

void Certificates::wake() {
  std::stop_source sleeping(std::nostopstate);
  {
    const MutexLock lock(mutex_);
    sleeping = awake_;
  }
  sleeping.request_stop();
}

/// The stop token of the sleep after the next step: a change during the step ends that sleep immediately.
std::stop_token Certificates::arm() {
  const MutexLock lock(mutex_);
  awake_ = std::stop_source();
  return awake_.get_token();
}

Clock::Duration Certificates::pause(bool done) const {
  if (!done) return kAgain;
  const MutexLock lock(mutex_);
  if (clock_.now() < watched_again_) return kUnwatched;
  return kEvery;
}

void Certificates::run(const std::function<void(const Serving&)>& changed, const std::stop_token& stop) {
  const auto secrets = "/api/v1/namespaces/" + names_.namespace_name + "/secrets";
  const std::pair<std::string, std::string> objects[] = {
      {secrets, names_.secret},
      {secrets, names_.client_secret},
      {std::string(kWebhooks) + "mutatingwebhookconfigurations", names_.webhooks},
      {std::string(kWebhooks) + "validatingwebhookconfigurations", names_.webhooks}};
  std::vector<Thread> watches;
  watches.reserve(std::size(objects));
  for (const auto& object : objects)
    watches.emplace_back("cert-watch",
                         [this, &object](const std::stop_token& end) { follow(object.first, object.second, end); });
  const std::stop_callback stopping(stop, [this] { wake(); });
  std::string logged;
  for (auto woken = arm(); !stop.stop_requested(); woken = arm()) {
    const auto done = step(changed);
    if (!done && done.error().what != logged) {
      logged = done.error().what;
      log_.warn("certificates cannot be maintained",
                {{"error", logged},
                 {"hint",
                  "the ServiceAccount needs create on secrets, get, list, watch and update on "
                  "its two Secrets, and get, list, watch and patch on the webhook "
                  "configurations named carve-admission"}});
    }
    if (done) logged.clear();
    if (stop.stop_requested()) break;
    clock_.sleep_for(pause(done.has_value()), woken);
  }
}

ClientPair Certificates::client() const {
  const MutexLock lock(mutex_);
  return client_;
}

Clock::WallTime Certificates::good_until() const {
  const MutexLock lock(mutex_);
  return serving_.life.until;
}

}  // namespace carve::tls
