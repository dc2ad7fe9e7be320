#include "adapter/http/streams.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/ascii.h"

namespace carve::http {
namespace {

constexpr std::size_t kPieceOut = 64UL << 10;
constexpr std::int32_t kWindow = 1 << 20;  // receive window in bytes: a call with 5,000 nodes needs no pause
constexpr std::size_t kFieldCost = 32;     // of a header field in addition to its text (RFC 9113, 6.5.2)

/// nghttp2 copies name and value.
nghttp2_nv field(const char* name, const std::string& value) {
  return {const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(name)),    // NOLINT: a C interface
          const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(value.data())),  // NOLINT
          std::strlen(name), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

/// The callbacks of nghttp2; `user` is the Streams object.
struct Streams::Callbacks {
  static Streams& self(void* user) { return *static_cast<Streams*>(user); }

  static int begin(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Streams& all = self(user);
    all.streams_[frame->hd.stream_id].since = all.now_;
    ++all.receiving_;
    return 0;
  }

  static int header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                    const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* user) {
    Streams& all = self(user);
    Stream* stream = all.find(frame->hd.stream_id);
    if (stream == nullptr || stream->complete || stream->refused) return 0;
    stream->head += name_size + value_size + kFieldCost;
    if (stream->head > all.limits_.head) {
      all.refuse(frame->hd.stream_id, stream, 431, "the head is larger than allowed");
      return 0;
    }
    const std::string_view key(reinterpret_cast<const char*>(name), name_size);
    const std::string_view text(reinterpret_cast<const char*>(value), value_size);
    if (key == ":method") stream->http.method = text;
    if (key == "x-carve-token" && stream->http.token.empty()) stream->http.token = text;
    if (key == "authorization" && text.starts_with("Bearer ")) stream->http.token = text.substr(7);
    if (key != ":path") return 0;
    const auto mark = text.find('?');
    stream->http.path = text.substr(0, mark);
    if (mark != std::string_view::npos) stream->http.query = text.substr(mark + 1);
    return 0;
  }

  static int data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes, std::size_t size,
                  void* user) {
    Streams& all = self(user);
    Stream* stream = all.find(id);
    if (stream == nullptr || stream->refused) return 0;
    if (all.held_ + size > all.limits_.body) {
      all.refuse(id, stream, 413, "the body is larger than allowed");
      return 0;
    }
    stream->http.body.append(reinterpret_cast<const char*>(bytes), size);
    all.held_ += size;
    return 0;
  }

  static int frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    Streams& all = self(user);
    if (Stream* stream = all.find(frame->hd.stream_id); stream != nullptr) all.finished(frame->hd.stream_id, stream);
    return 0;
  }

  static int close(nghttp2_session*, std::int32_t id, std::uint32_t, void* user) {
    self(user).closed(id);
    return 0;
  }

  static ssize_t read(nghttp2_session*, std::int32_t id, std::uint8_t* to, std::size_t room, std::uint32_t* flags,
                      nghttp2_data_source*, void* user) {
    Stream* stream = self(user).find(id);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const auto size = std::min(room, stream->answer.size() - stream->sent);
    std::memcpy(to, stream->answer.data() + stream->sent, size);
    stream->sent += size;
    if (stream->sent == stream->answer.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }
};

Streams::Streams(const Limits& limits) : limits_(limits) {
  nghttp2_session_callbacks* calls = nullptr;
  if (nghttp2_session_callbacks_new(&calls) != 0) return;
  nghttp2_session_callbacks_set_on_begin_headers_callback(calls, Callbacks::begin);
  nghttp2_session_callbacks_set_on_header_callback(calls, Callbacks::header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, Callbacks::data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(calls, Callbacks::frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(calls, Callbacks::close);
  if (nghttp2_session_server_new(&session_, calls, this) != 0) session_ = nullptr;
  nghttp2_session_callbacks_del(calls);
  if (session_ == nullptr) return;
  const std::array<nghttp2_settings_entry, 3> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMostAtOnce},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(limits_.head)},
  }};
  (void)nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  (void)nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindow);
}

Streams::~Streams() { nghttp2_session_del(session_); }

Streams::Stream* Streams::find(std::int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

void Streams::forget_body(Stream* stream) {
  held_ -= stream->http.body.size();
  stream->http.body = {};
}

/// Answers immediately with an error and discards the rest of the request.
void Streams::refuse(std::int32_t id, Stream* stream, int status, const char* why) {
  ++malformed_;
  stream->refused = true;
  forget_body(stream);
  reply(id, {status, "text/plain; charset=utf-8", std::string(why) + "\n"});
}

void Streams::finished(std::int32_t id, Stream* stream) {
  if (std::exchange(stream->complete, true)) return;
  --receiving_;
  if (stream->refused) return;
  held_ -= stream->http.body.size();
  stream->head_only = stream->http.method == "HEAD";
  ready_.push_back({id, std::move(stream->http)});
  stream->http = {};
}

void Streams::closed(std::int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  if (!found->second.complete) {
    --receiving_;
    forget_body(&found->second);
  }
  streams_.erase(found);
}

Result<std::vector<Streams::Request>> Streams::feed(std::string_view bytes, Time now) {
  if (session_ == nullptr) return fail(Code::kResourceExhausted, "HTTP/2: out of memory");
  now_ = now;
  const auto taken =
      nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0)
    return fail(Code::kInvalidArgument, std::string("HTTP/2: ") + nghttp2_strerror(static_cast<int>(taken)));
  // Requests that the client has cancelled are not answered.
  std::erase_if(ready_, [this](const Request& one) { return find(one.stream) == nullptr; });
  return std::exchange(ready_, {});
}

bool Streams::over() const {
  return session_ == nullptr || (nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0);
}

void Streams::reply(std::int32_t id, HttpResponse reply) {
  Stream* stream = find(id);
  if (session_ == nullptr || stream == nullptr) return;
  if (reply.more) reply = {406, "text/plain; charset=utf-8", "this path is served over HTTP/1.1 only\n"};
  const std::string status = std::to_string(reply.status >= 200 && reply.status <= 599 ? reply.status : 500);
  const std::string length = std::to_string(reply.body.size());
  for (auto& [name, value] : reply.fields) std::transform(name.begin(), name.end(), name.begin(), lower);
  std::vector<nghttp2_nv> fields = {field(":status", status), field("content-type", reply.type),
                                    field("content-length", length)};
  for (const auto& [name, value] : reply.fields) fields.push_back(field(name.c_str(), value));
  stream->answer = stream->head_only ? std::string() : std::move(reply.body);
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::read;
  const bool body = !stream->answer.empty();
  (void)nghttp2_submit_response(session_, id, fields.data(), fields.size(), body ? &provider : nullptr);
}

std::string Streams::output() {
  std::string out;
  if (session_ == nullptr) return out;
  while (out.size() < kPieceOut) {
    const std::uint8_t* bytes = nullptr;
    const auto size = nghttp2_session_mem_send(session_, &bytes);
    if (size <= 0) break;
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  }
  return out;
}

std::size_t Streams::drop_slow(Time since) {
  std::size_t dropped = 0;
  for (const auto& [id, stream] : streams_) {
    if (stream.complete || stream.since > since) continue;
    (void)nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    ++dropped;
  }
  malformed_ += dropped;
  return dropped;
}

void Streams::notice() {
  if (session_ != nullptr) (void)nghttp2_submit_shutdown_notice(session_);
}

void Streams::leave() {
  if (session_ == nullptr) return;
  (void)nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                              NGHTTP2_NO_ERROR, nullptr, 0);
}

std::size_t Streams::take_malformed() { return std::exchange(malformed_, 0); }

}  // namespace carve::http
