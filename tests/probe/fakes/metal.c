/* Metal and the Objective-C runtime without a Mac. METAL="limit=MiB;used=MiB;none=1". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t setting(const char *key, int64_t otherwise) {
    char name[32];
    const char *text = getenv("METAL");
    snprintf(name, sizeof name, "%s=", key);
    const char *found = text ? strstr(text, name) : NULL;
    return found ? atoll(found + strlen(name)) : otherwise;
}
void *MTLCreateSystemDefaultDevice(void) { return setting("none", 0) ? NULL : (void *)0x1000000001; }
const char *sel_registerName(const char *name) { return strdup(name); }
uint64_t objc_msgSend(void *self, const char *selector) {
    if (self == (void *)0x2000000002 && !strcmp(selector, "UTF8String")) return (uintptr_t)"Apple M9 Fake";
    if (self != (void *)0x1000000001) abort();
    if (!strcmp(selector, "recommendedMaxWorkingSetSize")) return (uint64_t)setting("limit", 22906) << 20;
    if (!strcmp(selector, "currentAllocatedSize")) return (uint64_t)setting("used", 6) << 20;
    if (!strcmp(selector, "maxBufferLength")) return (uint64_t)14000 << 20;
    if (!strcmp(selector, "hasUnifiedMemory")) return 0xFFFFFF01; /* a BOOL in a wide register */
    if (!strcmp(selector, "name")) return 0x2000000002;
    abort();
}
