// Only in the test build of the library (carve-cuda-killpoints). Every store to shared memory calls carve_kill_point
// twice, before and after the store; each call is a pass. These environment variables control it:
//   CARVE_KILL_AT=n             kills the process with SIGKILL at its n-th pass
//   CARVE_KILL_SITE=file:line   counts only the passes of this call site
//   CARVE_KILL_LIST=path        appends "number file:line" to the file at each pass, so that a test knows the number of
//                               passes and their call sites
//   CARVE_KILL_PAUSE=file:line  sleeps 2 ms at each pass of this call site, so that other threads run in between
// A call site matches by the end of its path.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

unsigned passes = 0;
int list = -1;
unsigned long deadly = 0;
int prepared = 0;
char site[256] = "";   // getenv() is not safe later, because the program changes its environment
char pause_at[256] = "";

void keep(const char* name, char* out) {
  const char* value = getenv(name);
  for (int i = 0; value != nullptr && value[i] != 0 && i < 255; ++i) {
    out[i] = value[i];
    out[i + 1] = 0;
  }
}

/// True when `text`, "…/file:line", ends with `wanted`. False when `wanted` is empty.
bool is_at(const char* text, unsigned long length, const char* wanted) {
  unsigned long count = 0;
  while (wanted[count] != 0) {
    ++count;
  }
  if (count == 0 || count > length) {
    return false;
  }
  for (unsigned long i = 0; i < count; ++i) {
    if (text[length - count + i] != wanted[i]) {
      return false;
    }
  }
  return true;
}

unsigned long number_in(const char* text) {
  unsigned long value = 0;
  for (; text != nullptr && *text >= '0' && *text <= '9'; ++text) {
    value = value * 10 + static_cast<unsigned long>(*text - '0');
  }
  return value;
}

char* put_number(char* at, unsigned long value) {
  char digits[24];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (count > 0) {
    *at++ = digits[--count];
  }
  return at;
}

}  // namespace

extern "C" void carve_kill_point(const char* file, int line) {
  if (prepared == 0) {
    prepared = 1;
    deadly = number_in(getenv("CARVE_KILL_AT"));
    keep("CARVE_KILL_SITE", site);
    keep("CARVE_KILL_PAUSE", pause_at);
    const char* path = getenv("CARVE_KILL_LIST");
    list = path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  }
  char text[512];
  char* at = text;
  for (; *file != 0 && at < text + 400; ++file) {
    *at++ = *file;
  }
  *at++ = ':';
  at = put_number(at, static_cast<unsigned long>(line));
  const auto length = static_cast<unsigned long>(at - text);
  const bool counts = site[0] == 0 || is_at(text, length, site);
  const unsigned now = counts ? __atomic_add_fetch(&passes, 1U, __ATOMIC_RELAXED) : 0;
  if (list >= 0) {
    char row[560];
    char* end = put_number(row, now);
    *end++ = ' ';
    for (unsigned long i = 0; i < length; ++i) {
      *end++ = text[i];
    }
    *end++ = '\n';
    (void)!write(list, row, static_cast<unsigned long>(end - row));
  }
  if (now != 0 && now == deadly) {
    kill(getpid(), SIGKILL);
  }
  if (is_at(text, length, pause_at)) {
    usleep(2000);
  }
}
