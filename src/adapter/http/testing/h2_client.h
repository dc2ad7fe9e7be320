#pragma once

#include <nghttp2/nghttp2.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace carve::http::testing {

/// The client's side of one HTTP/2 connection, without I/O.
class H2Client {
 public:
  struct Answer {
    std::string status;
    std::string body;
    bool over = false;
    bool refused = false;  // the server has refused it unprocessed (REFUSED_STREAM)
  };

  H2Client() {
    nghttp2_session_callbacks* calls = nullptr;
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_header_callback(
        calls, [](nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
                  const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* user) {
          if (std::string_view(reinterpret_cast<const char*>(name), name_size) == ":status")
            self(user).answers_[frame->hd.stream_id].status.assign(reinterpret_cast<const char*>(value), value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        calls, [](nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data, std::size_t size,
                  void* user) {
          self(user).answers_[id].body.append(reinterpret_cast<const char*>(data), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        calls, [](nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
          self(user).answers_[id].over = true;
          self(user).answers_[id].refused = error == NGHTTP2_REFUSED_STREAM;
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        calls, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
          if (frame->hd.type == NGHTTP2_GOAWAY) self(user).told_to_leave_ = true;
          return 0;
        });
    nghttp2_session_client_new(&session_, calls, this);
    nghttp2_session_callbacks_del(calls);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~H2Client() { nghttp2_session_del(session_); }
  H2Client(const H2Client&) = delete;
  H2Client& operator=(const H2Client&) = delete;

  /// A whole request; its stream.
  std::int32_t ask(const std::string& method, const std::string& path, std::string body) {
    return send(method, path, std::move(body), true);
  }
  /// Begins a request that never ends.
  std::int32_t begin(const std::string& path, std::string body) { return send("POST", path, std::move(body), false); }
  void cancel(std::int32_t stream) { nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL); }
  std::string output() {
    std::string out;
    const std::uint8_t* data = nullptr;
    for (auto size = nghttp2_session_mem_send(session_, &data); size > 0;
         size = nghttp2_session_mem_send(session_, &data))
      out.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    return out;
  }
  bool feed(std::string_view bytes) {
    return nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) >= 0;
  }
  [[nodiscard]] const Answer& answer(std::int32_t stream) { return answers_[stream]; }
  [[nodiscard]] bool refused(std::int32_t stream) { return answers_[stream].refused; }
  [[nodiscard]] bool told_to_leave() const { return told_to_leave_; }

 private:
  struct Body {
    std::string text;
    std::size_t sent = 0;
    bool ends = true;
  };
  static H2Client& self(void* user) { return *static_cast<H2Client*>(user); }
  static nghttp2_nv field(const char* name, const std::string& value) {
    return {const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(name)),
            const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(value.data())), std::strlen(name),
            value.size(), NGHTTP2_NV_FLAG_NONE};
  }
  static ssize_t read(nghttp2_session*, std::int32_t, std::uint8_t* to, std::size_t room, std::uint32_t* flags,
                      nghttp2_data_source* source, void*) {
    Body& body = *static_cast<Body*>(source->ptr);
    const auto size = std::min(room, body.text.size() - body.sent);
    if (size == 0 && !body.ends) return NGHTTP2_ERR_DEFERRED;
    std::memcpy(to, body.text.data() + body.sent, size);
    body.sent += size;
    if (body.sent == body.text.size() && body.ends) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }
  std::int32_t send(const std::string& method, const std::string& path, std::string text, bool ends) {
    const std::string scheme = "https", authority = "carve-control";
    const std::array<nghttp2_nv, 4> fields = {{field(":method", method), field(":path", path),
                                               field(":scheme", scheme), field(":authority", authority)}};
    Body& body = bodies_[++bodies_made_];
    body = {std::move(text), 0, ends};
    nghttp2_data_provider provider{};
    provider.source.ptr = &body;
    provider.read_callback = read;
    const bool none = body.text.empty() && ends;
    return nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(), none ? nullptr : &provider, nullptr);
  }

  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Answer> answers_;
  std::map<int, Body> bodies_;
  int bodies_made_ = 0;
  bool told_to_leave_ = false;
};

}  // namespace carve::http::testing
