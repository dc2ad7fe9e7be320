#pragma once

// Force-included into every file of the library: binds what newer C libraries moved or re-versioned to the
// version that glibc 2.17 has, so that an object built on a new system loads on an old one. Only names above
// the floor are pinned; pthread_cond_* must not be (the old versions have another layout).
#if defined(__x86_64__)
#define CARVE_FLOOR "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define CARVE_FLOOR "GLIBC_2.17"
#else
#error "no glibc floor known for this machine"
#endif
#define CARVE_PIN(symbol) __asm__(".symver " #symbol "," #symbol "@" CARVE_FLOOR)

CARVE_PIN(dlclose);
CARVE_PIN(dlopen);
CARVE_PIN(dlsym);
CARVE_PIN(pthread_attr_setstacksize);
CARVE_PIN(pthread_create);
CARVE_PIN(pthread_sigmask);
