// Only in the test build of the library (carve-cuda-killpoints): every store to shared memory passes here twice,
// before and after. CARVE_KILL_AT=n dies of SIGKILL at the n-th pass of the process; CARVE_KILL_LIST=path appends
// "number file:line" for every pass there, so that a test knows how many there are and at which call sites.
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
    const char* path = getenv("CARVE_KILL_LIST");
    list = path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  }
  const unsigned now = __atomic_add_fetch(&passes, 1U, __ATOMIC_RELAXED);
  if (list >= 0) {
    char text[512];
    char* at = put_number(text, now);
    *at++ = ' ';
    for (; *file != 0 && at < text + 400; ++file) {
      *at++ = *file;
    }
    *at++ = ':';
    at = put_number(at, static_cast<unsigned long>(line));
    *at++ = '\n';
    (void)!write(list, text, static_cast<unsigned long>(at - text));
  }
  if (now == deadly) {
    kill(getpid(), SIGKILL);
  }
}
