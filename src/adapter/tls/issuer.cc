#include "adapter/tls/issuer.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>

namespace carve::tls {
namespace {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
void free_bio(BIO* bio) { (void)BIO_free(bio); }
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Memory = std::unique_ptr<BIO, Freed<BIO, free_bio>>;
using Number = std::unique_ptr<BIGNUM, Freed<BIGNUM, BN_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION, X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES, GENERAL_NAMES_free>>;

tl::unexpected<Error> cannot(const char* what) {
  char text[160] = "";
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
  ERR_clear_error();
  return fail(Code::kInternal, std::string(what) + ": " + text);
}

Memory memory_of(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Cert read_certificate(const std::string& pem) {
  const auto memory = memory_of(pem);
  Cert certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Key read_key(const std::string& pem) {
  const auto memory = memory_of(pem);
  char none[] = "";  // Carve's keys have no password; without this OpenSSL would ask for one on the terminal
  Key key(PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, none));
  ERR_clear_error();
  return key;
}

std::string text_in(BIO* memory) {
  char* data = nullptr;
  const auto size = BIO_get_mem_data(memory, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

std::string pem_of(X509* certificate) {
  const Memory memory(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(memory.get(), certificate) != 1) return {};
  return text_in(memory.get());
}

std::string pem_of(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) return {};
  return text_in(memory.get());
}

bool add(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool set_serial(X509* certificate) {
  const Number number(BN_new());
  return number != nullptr && BN_rand(number.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_name(X509* certificate, const std::string& common_name) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(common_name.data()),
                                    static_cast<int>(common_name.size()), -1, 0) == 1;
}

/// A certificate for `key`, without extensions and signature.
Cert begin(EVP_PKEY* key, const std::string& common_name, const Life& life) {
  using std::chrono::system_clock;
  using std::chrono::time_point_cast;
  const auto seconds = [](Clock::WallTime time) {
    return system_clock::to_time_t(time_point_cast<system_clock::duration>(time));
  };
  Cert made(X509_new());
  if (made == nullptr || X509_set_version(made.get(), X509_VERSION_3) != 1 || !set_serial(made.get()) ||
      ASN1_TIME_set(X509_getm_notBefore(made.get()), seconds(life.from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(made.get()), seconds(life.until)) == nullptr ||
      X509_set_pubkey(made.get(), key) != 1 || !set_name(made.get(), common_name))
    return nullptr;
  return made;
}

Clock::WallTime time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

std::string text_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

}  // namespace

Result<Pair> make_authority(const std::string& common_name, const Life& life) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return cannot("create a key");
  const auto made = begin(key.get(), common_name, life);
  if (made == nullptr || X509_set_issuer_name(made.get(), X509_get_subject_name(made.get())) != 1 ||
      !add(made.get(), made.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add(made.get(), made.get(), NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add(made.get(), made.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(made.get(), key.get(), EVP_sha256()) == 0)
    return cannot("create an authority");
  return Pair{pem_of(made.get()), pem_of(key.get())};
}

Result<Pair> issue(const Pair& authority, const Purpose& purpose, const Life& life) {
  const auto issuer = read_certificate(authority.certificate);
  const auto issuer_key = read_key(authority.key);
  if (issuer == nullptr || issuer_key == nullptr || X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return fail(Code::kInvalidArgument, "the authority's certificate and key do not match");
  }
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return cannot("create a key");
  std::string names;
  for (const auto& name : purpose.dns_names) names += (names.empty() ? "DNS:" : ",DNS:") + name;
  const auto made = begin(key.get(), purpose.common_name, life);
  if (made == nullptr || X509_set_issuer_name(made.get(), X509_get_subject_name(issuer.get())) != 1 ||
      !add(made.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !add(made.get(), issuer.get(), NID_key_usage, "critical,digitalSignature") ||
      !add(made.get(), issuer.get(), NID_ext_key_usage, names.empty() ? "clientAuth" : "serverAuth") ||
      !add(made.get(), issuer.get(), NID_authority_key_identifier, "keyid") ||
      (!names.empty() && !add(made.get(), issuer.get(), NID_subject_alt_name, names)) ||
      X509_sign(made.get(), issuer_key.get(), EVP_sha256()) == 0)
    return cannot("create a certificate");
  return Pair{pem_of(made.get()), pem_of(key.get())};
}

Result<Facts> facts_of(const std::string& certificate) {
  const auto read = read_certificate(certificate);
  if (read == nullptr) return fail(Code::kInvalidArgument, "the PEM text contains no certificate");
  Facts facts;
  facts.life = {time_of(X509_get0_notBefore(read.get())), time_of(X509_get0_notAfter(read.get()))};
  const X509_NAME* subject = X509_get_subject_name(read.get());
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at >= 0) facts.purpose.common_name = text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  const Names names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(read.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* one = sk_GENERAL_NAME_value(names.get(), i);
    if (one->type == GEN_DNS) facts.purpose.dns_names.push_back(text_of(one->d.dNSName));
  }
  ERR_clear_error();
  return facts;
}

std::vector<std::string> certificates_in(const std::string& pem) {
  std::vector<std::string> all;
  const auto memory = memory_of(pem);
  while (true) {
    const Cert one(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
    const auto wrong = ERR_peek_last_error();
    ERR_clear_error();
    if (one != nullptr) all.push_back(pem_of(one.get()));
    // A damaged block is skipped; the end of the text is a different error.
    if (one == nullptr && (BIO_pending(memory.get()) == 0 || ERR_GET_REASON(wrong) == PEM_R_NO_START_LINE)) return all;
  }
}

bool belongs(const std::string& certificate, const std::string& key) {
  const auto read = read_certificate(certificate);
  const auto secret = read_key(key);
  const bool fits = read != nullptr && secret != nullptr && X509_check_private_key(read.get(), secret.get()) == 1;
  ERR_clear_error();
  return fits;
}

bool signed_by(const std::string& certificate, const std::string& authority) {
  const auto read = read_certificate(certificate);
  const auto issuer = read_certificate(authority);
  const bool is = read != nullptr && issuer != nullptr &&
                  X509_NAME_cmp(X509_get_issuer_name(read.get()), X509_get_subject_name(issuer.get())) == 0 &&
                  X509_verify(read.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  return is;
}

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

Result<std::string> from_base64(std::string_view text) {
  constexpr std::size_t kMost = 2UL << 20;  // a Secret is at most 1 MiB
  const auto wrong = [] { return fail(Code::kInvalidArgument, "not base64"); };
  const auto padding = text.size() - std::min(text.find('='), text.size());
  if (text.size() > kMost || text.size() % 4 != 0 || padding > 2) return wrong();
  if (padding == 2 && text.back() != '=') return wrong();
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0 || static_cast<std::size_t>(size) != bytes.size())
    return wrong();  // surrounding blanks are not legal either
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace carve::tls
